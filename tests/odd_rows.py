"""Rows in which a label does not simply count once."""

from __future__ import annotations

import torch
from torch import Tensor

ODD = ("ignored", "nothing else", "nothing", "lowest", "nan", "certain")


def spoil(case: str, logits: Tensor, target: Tensor) -> None:
    """Make one of the first four rows odd, in place."""
    if case == "ignored":
        target[2] = -100
    elif case == "nothing else":
        logits[1, torch.arange(logits.shape[1]) != target[1]] = -torch.inf
    elif case == "nothing":
        logits[1] = -torch.inf
    elif case == "lowest":
        logits[1] = torch.finfo(logits.dtype).min
    elif case == "nan":
        logits[3, 0] = torch.nan
    else:
        logits[3, target[3]] = torch.inf
