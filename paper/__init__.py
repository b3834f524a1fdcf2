"""The paper's tables and figures as experiments: runs in rows and columns, with the printed numbers."""

from paper.experiment import Cell, Choice, Experiment, Option, Procedure, Reported, Row, grid

__all__ = ["Cell", "Choice", "Experiment", "Option", "Procedure", "Reported", "Row", "grid"]
