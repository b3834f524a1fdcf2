"""What a run is, without torch: expressions, schedules, the frozen `Run` and the two protocols."""

from reweigh.spec.expression import Expression, ExpressionError, Value, parse
from reweigh.spec.presets import authors, text
from reweigh.spec.run import Field, Run, describe
from reweigh.spec.schedule import at_step, factor_at, is_scheduled, value_at
from reweigh.spec.seeds import read_seeds

__all__ = [
    "Expression",
    "ExpressionError",
    "Field",
    "Run",
    "Value",
    "at_step",
    "authors",
    "describe",
    "factor_at",
    "is_scheduled",
    "parse",
    "read_seeds",
    "text",
    "value_at",
]
