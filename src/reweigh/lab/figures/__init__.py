"""Figures as data, and functions that draw them into files or as text; those of runs are in `reweigh.lab.report`."""

from reweigh.lab.figures.draw import draw_figures, write_figures
from reweigh.lab.figures.figure import Bars, Figure, Heat, Lines, Series, Stack

__all__ = ["Bars", "Figure", "Heat", "Lines", "Series", "Stack", "draw_figures", "write_figures"]
