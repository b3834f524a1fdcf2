"""Weightings: p -> w, frozen dataclasses in the log domain.

They are safe globals of torch: a checkpoint that contains them loads under `weights_only`. Those made from a function
are not, because a pickled function is its name.
"""

from torch.serialization import add_safe_globals

from reweigh.weightings.base import Weighting
from reweigh.weightings.compose import PerClass, Product, Scaled, Sum, Tapered
from reweigh.weightings.curve import Curve, FromCallable, FromLoss, as_weighting
from reweigh.weightings.dm import DM, IMAE, Beta, Exponential, Normal, Uniform
from reweigh.weightings.losses import (
    AEL,
    AGCE,
    AUL,
    CCE,
    GCE,
    MAE,
    MSE,
    SL,
    Focal,
    ForwardSymmetric,
    PHuber,
    TruncatedGCE,
)

__all__ = [
    "AEL",
    "AGCE",
    "AUL",
    "CCE",
    "DM",
    "GCE",
    "IMAE",
    "MAE",
    "MSE",
    "SL",
    "Beta",
    "Curve",
    "Exponential",
    "Focal",
    "ForwardSymmetric",
    "FromCallable",
    "FromLoss",
    "Normal",
    "PHuber",
    "PerClass",
    "Product",
    "Scaled",
    "Sum",
    "Tapered",
    "TruncatedGCE",
    "Uniform",
    "Weighting",
    "as_weighting",
]

_FROM_LOSSES = [AEL, AGCE, AUL, CCE, GCE, MAE, MSE, SL, Focal, ForwardSymmetric, PHuber, TruncatedGCE]
_DENSITIES = [DM, IMAE, Beta, Curve, Exponential, Normal, Uniform]
_COMPOSED = [PerClass, Product, Scaled, Sum, Tapered]
add_safe_globals([*_FROM_LOSSES, *_DENSITIES, *_COMPOSED])
