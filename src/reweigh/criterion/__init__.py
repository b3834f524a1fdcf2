"""From weights to gradients: functional forms, modules, and a look inside."""

from reweigh.criterion.functional import binary_derivative_manipulation, derivative_manipulation
from reweigh.criterion.inspection import BatchStats, batch_stats
from reweigh.criterion.linear import LinearCriterion
from reweigh.criterion.module import BinaryCriterion, Criterion

__all__ = [
    "BatchStats",
    "BinaryCriterion",
    "Criterion",
    "LinearCriterion",
    "batch_stats",
    "binary_derivative_manipulation",
    "derivative_manipulation",
]
