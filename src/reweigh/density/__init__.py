"""A weighting seen as an emphasis density, and as an objective."""

from reweigh.density.density import emphasis_variance, integral, share, unit
from reweigh.density.emphasis import Emphasis, emphasis_of
from reweigh.density.potential import from_loss, is_bounded, potential, potential_range, symmetry_gap
from reweigh.density.quadrature import log_integral

__all__ = [
    "Emphasis",
    "emphasis_of",
    "emphasis_variance",
    "from_loss",
    "integral",
    "is_bounded",
    "log_integral",
    "potential",
    "potential_range",
    "share",
    "symmetry_gap",
    "unit",
]
