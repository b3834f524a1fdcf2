"""Weightings: p -> w, frozen dataclasses in the log domain."""

from reweigh.weighting.base import Weighting
from reweigh.weighting.compose import PerClass, Product, Scaled, Sum, Tapered
from reweigh.weighting.curve import Curve, FromCallable, FromLoss, as_weighting
from reweigh.weighting.dm import DM, IMAE, Beta, Exponential, Normal, Uniform
from reweigh.weighting.losses import CCE, GCE, MAE, MSE, SL, Focal, TruncatedGCE
from reweigh.weighting.robust import AEL, AGCE, AUL, ForwardSymmetric, PHuber

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
