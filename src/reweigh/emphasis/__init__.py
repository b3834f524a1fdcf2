"""A weighting seen as an emphasis density, and as an objective."""

from reweigh.emphasis.density import emphasis_share, emphasis_variance, integral, unit_weighting
from reweigh.emphasis.emphasis import Emphasis, emphasis_of
from reweigh.emphasis.potential import from_loss, is_bounded, potential, potential_range, symmetry_gap
from reweigh.emphasis.quadrature import log_integral

__all__ = [
    "Emphasis",
    "emphasis_of",
    "emphasis_share",
    "emphasis_variance",
    "from_loss",
    "integral",
    "is_bounded",
    "log_integral",
    "potential",
    "potential_range",
    "symmetry_gap",
    "unit_weighting",
]
