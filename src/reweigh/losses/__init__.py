"""Losses with another direction than cross entropy's, which no weighting can express, and the textbook MAE."""

from reweigh.losses.clip import LogitClip
from reweigh.losses.correction import Backward, Forward
from reweigh.losses.full import Brier, FullMAE
from reweigh.losses.loss import Loss
from reweigh.losses.normalised import ANL_CE, NCE_AGCE, NCE_RCE
from reweigh.losses.prior import BalancedSoftmax, LogitAdjustment
from reweigh.losses.smoothing import BootstrapHard, BootstrapSoft, LabelSmoothing

__all__ = [
    "ANL_CE",
    "NCE_AGCE",
    "NCE_RCE",
    "Backward",
    "BalancedSoftmax",
    "BootstrapHard",
    "BootstrapSoft",
    "Brier",
    "Forward",
    "FullMAE",
    "LabelSmoothing",
    "LogitAdjustment",
    "LogitClip",
    "Loss",
]
