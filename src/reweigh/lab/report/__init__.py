"""What runs have to tell: figures, one self-contained HTML page, event files, and the paper's figures by name."""

from reweigh.lab.report.collect import Group, Told, collect, group
from reweigh.lab.report.draw import draw, write
from reweigh.lab.report.figure import Bars, Figure, Heat, Lines, Series, Stack
from reweigh.lab.report.page import explorer_page, report_page

__all__ = [
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
    "report_page",
    "write",
]
