"""The criterion's arithmetic in fused Triton kernels: another way to compute what `reweigh.functional` defines.

`supports` says whether kernels take a whole call, `has_rows` whether they take single passes over its rows. Triton is
imported on first use. REWEIGH_KERNELS=off turns the kernels off.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from reweigh.weightings.compose import form_of
from reweigh.weightings.parameter import in_checked_mode

if TYPE_CHECKING:
    from reweigh.functional import Settings
    from reweigh.targets import Factors

ENABLED = os.environ.get("REWEIGH_KERNELS", "on").lower() != "off" and find_spec("triton") is not None
DEVICES = ("cuda",)
TYPES = (torch.float16, torch.bfloat16, torch.float32)
# A kernel divides by q + taper in float32.
LEAST_TAPER = 1e-30


def has_rows(logits: Tensor, target: Tensor | None = None) -> bool:
    """Return whether these are logits (N, C) of at most 32 bits on a GPU, with contiguous rows, and class indices."""
    return (
        ENABLED
        and logits.device.type in DEVICES
        and logits.dtype in TYPES
        and logits.ndim == 2
        and logits.numel() > 0
        and logits.stride(1) == 1
        and type(logits) in (Tensor, nn.Parameter)
        and (target is None or _has_indices(target, logits))
    )


def supports(logits: Tensor, settings: Settings, factors: Factors, log_normaliser: Tensor | float | None) -> bool:
    """Return whether kernels compute the value and the gradient of a call, where `has_rows`.

    The weighting must be one that a kernel knows by a few numbers (`Weighting.form`), the value cross entropy, and the
    normalisation the batch's or none.
    """
    taper = settings.taper
    return (
        (settings.value, settings.process_group, log_normaliser) == ("cross_entropy", None, None)
        and settings.normalise != "class"
        and settings.smoothing == 0
        and not settings.binary
        and not isinstance(taper, Tensor)
        and (taper == 0 or taper >= LEAST_TAPER)
        and all(x is None or _is_factor(x, logits, dim) for dim, x in ((1, factors.weight), (0, factors.sample_weight)))
        and form_of(settings.weighting) is not None
        and not in_checked_mode()  # which looks at every label
    )


def value_and_pull(
    logits: Tensor, target: Tensor, settings: Settings, factors: Factors
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the value of a supported call, a size (empty where it is 1), and a pull: size * pull is the gradient."""
    form = form_of(settings.weighting)
    assert form is not None
    # a gradient in float16 is kept N times as large: divided by N, small entries would be lost before a loss scale
    lift = float(len(target)) if logits.dtype == torch.float16 and settings.reduction == "mean" else 1.0
    numbers = [float(x) for x in (form.a, form.b, form.c, form.inner, settings.taper, lift)]
    weighed = (form.family, numbers, settings.normalise == "batch", settings.reduction, settings.ignore_index)
    value, pull = operators().value_and_pull(logits, target, factors.weight, factors.sample_weight, *weighed)
    return value, value.new_full((), 1 / lift) if lift != 1 else value.new_empty(0), pull


def operators() -> ModuleType:
    """Return the module of the operators, which imports Triton: `measure`, `emit`, `emit_` and `rescale_` for rows."""
    from reweigh.ops import launch

    return launch


def _has_indices(target: Tensor, logits: Tensor) -> bool:
    is_integer = not (target.is_floating_point() or target.is_complex() or target.dtype == torch.bool)
    return is_integer and target.shape == logits.shape[:1] and target.device == logits.device


def _is_factor(x: Tensor, logits: Tensor, dim: int) -> bool:
    """Return whether a kernel can read a factor per row (dim 0) or per class (dim 1)."""
    return x.shape == (logits.shape[dim],) and x.is_floating_point() and x.device == logits.device
