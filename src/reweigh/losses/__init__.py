"""Losses whose gradient has another direction than cross entropy's, so that no weighting expresses them, and MAE."""

from reweigh.losses.correction import Backward, Forward
from reweigh.losses.loss import Loss
from reweigh.losses.normalised import ANL_CE, NCE_AGCE, NCE_RCE
from reweigh.losses.prior import BalancedSoftmax, LogitAdjustment
from reweigh.losses.robust import Brier, FullMAE, LogitClip
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
