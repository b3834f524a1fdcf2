"""Tables and figures of a paper as experiments: runs in rows and columns, the printed numbers beside them."""

from paper.values import Cell, Choice, Experiment, Option, Procedure, Reported, Row, grid

__all__ = ["Cell", "Choice", "Experiment", "Option", "Procedure", "Reported", "Row", "grid"]
