"""Methods: what decides the loss of a run when neither a weighting nor a loss does."""

from reweigh.lab.methods.criterion import ByCriterion
from reweigh.lab.methods.protocol import Context, Method

__all__ = ["ByCriterion", "Context", "Method"]
