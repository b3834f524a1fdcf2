"""Reports on runs: groups of runs, their figures, HTML pages that work offline, and TensorBoard event files."""

from reweigh.lab.report.collect import Group, RunSummary, collect, group
from reweigh.lab.report.page import explorer_page, report_page

__all__ = ["Group", "RunSummary", "collect", "explorer_page", "group", "report_page"]
