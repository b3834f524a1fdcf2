"""From weights to gradients: functional forms, modules, and a look inside."""

from reweigh.criterion.functional import binary_derivative_manipulation, derivative_manipulation
from reweigh.criterion.inspection import Stats, inspect
from reweigh.criterion.linear import LinearCriterion
from reweigh.criterion.module import BinaryCriterion, Criterion

__all__ = [
    "BinaryCriterion",
    "Criterion",
    "LinearCriterion",
    "Stats",
    "binary_derivative_manipulation",
    "derivative_manipulation",
    "inspect",
]
