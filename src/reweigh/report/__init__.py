"""What runs have to tell: figures, one self-contained HTML page, event files, and the paper's figures by name."""

from reweigh.report.collect import Group, Told, collect, group
from reweigh.report.draw import draw, write
from reweigh.report.figure import Bars, Figure, Heat, Lines, Series, Stack
from reweigh.report.page import explorer_page, report_page
from reweigh.report.paper import NAMES, paper_figure

__all__ = [
    "NAMES",
    "Bars",
    "Figure",
    "Group",
    "Heat",
    "Lines",
    "Series",
    "Stack",
    "Told",
    "collect",
    "draw",
    "explorer_page",
    "group",
    "paper_figure",
    "report_page",
    "write",
]
