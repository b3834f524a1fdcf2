"""What a run is: expressions, schedules and the frozen `Run`. Importing this package does not import torch."""

from reweigh.lab.spec.checks import read_seeds
from reweigh.lab.spec.expression import Expression, ExpressionError, Value, own_names, parse
from reweigh.lab.spec.run import DATA_FIELDS, Field, Run, describe
from reweigh.lab.spec.schedule import at_step, factor_at, is_scheduled, value_at

__all__ = [
    "DATA_FIELDS",
    "Expression",
    "ExpressionError",
    "Field",
    "Run",
    "Value",
    "at_step",
    "describe",
    "factor_at",
    "is_scheduled",
    "own_names",
    "parse",
    "read_seeds",
    "value_at",
]
