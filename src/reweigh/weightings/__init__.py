"""Weightings: p -> w, frozen dataclasses in the log domain."""

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
