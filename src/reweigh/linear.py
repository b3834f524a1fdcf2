"""A linear layer and its criterion in one, for vocabularies whose logits would not fit.

The gradients are computed in the forward pass, a chunk of examples at a time, and unnormalised: each chunk's s w
relative to 2^level, the largest size of s w so far, rounded up. When a chunk raises the level, what has been summed is
divided by the power of two in between, which costs no digits. Normaliser, mean and incoming gradient are one factor at
the end.

float16 ends at 65504, which the sum over many examples may exceed where their mean does not: there the gradient of the
weight is in units of 2^(level + room), with as much room as a bound on the sum asks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import linear

from reweigh import ops
from reweigh.criterion import SettingsMixin
from reweigh.functional import (
    Normalise,
    Reduction,
    Settings,
    Taper,
    Value,
    check_call,
    group_size,
    over_group,
)
from reweigh.margin import at_least_float32, log_probabilities, margin_and_pull, statistic
from reweigh.targets import Factors, check_tensors, known_labels
from reweigh.weightings import Weighting
from reweigh.weightings.compose import align_leading, has_example_parameters, log_taper, select_parameters
from reweigh.weightings.parameter import is_log_zero, take_rows

# Logits at a time: 256 MB in half precision on a GPU, 64 MB in float32 on a CPU, where larger chunks are no faster.
CHUNK, CPU_CHUNK = 2**27, 2**24
LOG2 = math.log(2)
# Sums of float16 stay below 2^SAFE, half of its range: the bound does not include rounding.
SAFE = 15


class LinearCriterion(SettingsMixin):
    """`Criterion(weighting)(hidden @ weight.T + bias, target)` without ever storing all the logits.

    Peak memory grows with a chunk of examples, not with N x C. Batch normalisation is exact, in one pass. The gradient
    of a frozen weight is not computed. DFT, the token loss of language-model trainers, is `LinearCriterion(MAE())`.

    Args:
        weighting, weight, ignore_index, normalise, taper, process_group: as in `Criterion`; `weight` has one factor
            per class.
        reduction: "mean", "sum", or "none", which computes the logits again in the backward pass, because the examples'
            gradients are summed after each is multiplied by its incoming one.
        chunk: examples at a time; None takes as many as give 2^27 logits, on a CPU 2^24. The weight's gradient is
            summed over chunks in the weight's type (float16 without leaving its range).
        label_smoothing, value: only the defaults; a chunk has one label per example, and returns cross entropy.

    The gradients are computed in the forward pass: no second derivative, no `torch.func` transforms, no forward mode.

    >>> from reweigh.weightings import MAE
    >>> hidden, weight = torch.ones(4, 2), torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]], requires_grad=True)
    >>> LinearCriterion(MAE(), chunk=2)(hidden, weight, torch.tensor([0, 1, 2, -100])).backward()
    >>> weight.grad.shape
    torch.Size([3, 2])
    """

    weight: Tensor | None

    def __init__(
        self,
        weighting: Weighting | Callable[..., Tensor],
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        normalise: Normalise = "auto",
        taper: Taper = "auto",
        value: Value = "cross_entropy",
        process_group: Any = None,
        chunk: int | None = None,
    ) -> None:
        if label_smoothing != 0:
            raise ValueError(f"label_smoothing must be 0 in LinearCriterion, got {label_smoothing}: use Criterion")
        if value != "cross_entropy":
            raise ValueError(f"value must be 'cross_entropy' in LinearCriterion, got {value!r}: use Criterion")
        if chunk is not None and chunk < 1:
            raise ValueError(f"chunk must be a number of examples, at least 1, got {chunk}")
        super().__init__()
        self.register_buffer("weight", weight)
        self.weighting, self.reduction, self.normalise, self.taper = weighting, reduction, normalise, taper
        self.process_group, self.ignore_index, self.chunk = process_group, ignore_index, chunk
        _ = self.settings  # checks them

    def _resolve(self, *given: Any) -> Settings:
        settings = super()._resolve(*given)
        if settings.normalise == "class":
            raise ValueError(
                "normalise must be None, 'unit' or 'batch' in LinearCriterion, which sums its gradients over the "
                "classes before it knows what each would be divided by; got 'class'"
            )
        if has_example_parameters(settings.weighting) or has_example_parameters(settings.taper):
            raise ValueError(
                "weighting and taper must have numbers or PerClass tensors as parameters in LinearCriterion, which "
                f"sees the examples in chunks; got {settings.weighting!r}, taper={settings.taper!r}"
            )
        return settings

    def forward(
        self,
        hidden: Tensor,
        weight: Tensor,
        target: Tensor,
        bias: Tensor | None = None,
        *,
        sample_weight: Tensor | None = None,
        log_normaliser: Tensor | float | None = None,
    ) -> Tensor:
        """Return the value, scalar or per example.

        Args:
            hidden: (..., D), the input of the layer.
            weight, bias: (C, D) and (C), the layer.
            target: (...), class indices.
            sample_weight: a factor per example, or per leading dimension of them (a token mask, say); a constant.
            log_normaliser: log Σ s w over several micro-batches, from `log_normaliser`, to accumulate exactly.
        """
        settings = self.settings
        layer, labels = self._prepare(settings, hidden, weight, target, bias, sample_weight, log_normaliser)
        if sample_weight is not None and sample_weight.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                "sample_weight gets no gradient from LinearCriterion; detach it, or use Criterion on the logits"
            )
        value: Tensor = _Linear.apply(*layer, labels, settings, log_normaliser)  # type: ignore[no-untyped-call]
        return value.reshape(target.shape) if settings.reduction == "none" else value

    @torch.no_grad()
    def log_normaliser(
        self,
        hidden: Tensor,
        weight: Tensor,
        target: Tensor,
        bias: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Return log Σ s w of a micro-batch; `torch.logsumexp` of several is the `log_normaliser` of their union."""
        settings = self.settings
        layer, labels = self._prepare(settings, hidden, weight, target, bias, sample_weight, None)
        return _log_normaliser_of(_accumulate(*layer, labels, settings, (False, False, False)), settings)

    def _prepare(
        self,
        settings: Settings,
        hidden: Tensor,
        weight: Tensor,
        target: Tensor,
        bias: Tensor | None,
        sample_weight: Tensor | None,
        log_normaliser: Tensor | float | None,
    ) -> tuple[tuple[Tensor, Tensor, Tensor | None], Examples]:
        needed = {"hidden": hidden, "weight": weight, "target": target}
        check_tensors(needed, {"bias": bias, "sample_weight": sample_weight})
        check_call(hidden, target, settings, Factors(self.weight, None, sample_weight), log_normaliser)
        if weight.ndim != 2:
            raise ValueError(f"weight must be shaped (C, D), got {tuple(weight.shape)}")
        positions, (num_classes, width) = hidden.shape[:-1], weight.shape
        if hidden.shape[-1] != width:
            raise ValueError(f"hidden must end in weight's {width} columns, got shape {tuple(hidden.shape)}")
        if bias is not None and bias.shape != (num_classes,):
            raise ValueError(f"bias must have weight's {num_classes} rows, got shape {tuple(bias.shape)}")
        if self.weight is not None and self.weight.shape != (num_classes,):
            shape = tuple(self.weight.shape)
            raise ValueError(f"weight must have one entry for each of the {num_classes} classes, got shape {shape}")
        if target.is_floating_point():
            raise TypeError(f"target must hold class indices in LinearCriterion, got {target.dtype}")
        index, valid = known_labels(target, positions, num_classes, self.ignore_index)
        valid = torch.ones_like(index, dtype=torch.bool) if valid is None else valid
        s = statistic(valid)
        if self.weight is not None:
            s = s * take_rows(statistic(self.weight), index)
        if sample_weight is not None:
            s = s * statistic(align_leading(sample_weight.detach(), positions, "sample_weight"))
        kind = hidden.device.type
        layer = (hidden.reshape(-1, width), weight, bias)
        # float64 stays as it is, as in torch's own layers; some compilers can't read whether a device has autocast
        available = torch.compiler.is_compiling() or torch.amp.is_autocast_available(kind)
        if hidden.dtype != torch.float64 and available and torch.is_autocast_enabled(kind):
            half = torch.get_autocast_dtype(kind)
            layer = (layer[0].to(half), weight.to(half), None if bias is None else bias.to(half))
        chunk = self.chunk or max(1, (CPU_CHUNK if kind == "cpu" else CHUNK) // num_classes)
        return layer, Examples(index.flatten(), s.flatten(), valid.flatten(), chunk)


class Examples(NamedTuple):
    """Class indices (0 where ignored), s = class weight x sample weight x valid, valid, and the size of a chunk."""

    target: Tensor
    s: Tensor
    valid: Tensor
    chunk: int


class Sums(NamedTuple):
    """Of all chunks: s (-log p) per example; log2 of the unit of s w; Σ s w in that unit; and the gradients.

    The bias' has at least 32 bits, the weight's its own type, and the weight's alone is in units of 2^(level + room).
    """

    surprise: Tensor
    level: Tensor
    total: Tensor
    room: Tensor
    gradients: list[Tensor | None]


class _Linear(torch.autograd.Function):
    """The value; the gradients are kept in units of 2^level until the factor that they are multiplied by is known."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Examples,
        settings: Settings,
        log_normaliser: Tensor | float | None,
    ) -> Tensor:
        ctx.save_for_backward(hidden, weight, bias)
        ctx.labels, ctx.settings, ctx.bias_type = labels, settings, None if bias is None else bias.dtype
        summed = settings.reduction != "none"
        wanted = ctx.needs_input_grad[:3] if summed else (False, False, False)
        sums = _accumulate(hidden, weight, bias, labels, settings, wanted)
        size = group_size(settings.process_group)
        mass = over_group(labels.s.sum(), settings.process_group)
        mean = size / torch.where(mass == 0, 1.0, mass) if settings.reduction == "mean" else torch.ones_like(mass)
        if settings.normalise == "batch":
            log_z = _log_normaliser_of(sums, settings) if log_normaliser is None else log_normaliser
            log_z = torch.as_tensor(log_z, dtype=mass.dtype, device=mass.device)
            log_scale, scale = torch.where(log_z == -math.inf, 0.0, -log_z), torch.full_like(mass, size)
        else:
            log_scale, scale = torch.zeros_like(mass), mean
        ctx.sums, ctx.log_scale, ctx.scale = sums if summed else None, log_scale, scale
        value = sums.surprise.sum() * mean if summed else sums.surprise
        # a copy also in float64: compiled by torch 2.11, a value that is an intermediate, too, has zeros for gradients
        kind = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        return value.to(kind, copy=True)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError(
                "LinearCriterion has no second derivative (create_graph=True); use Criterion on the logits"
            )
        sums, ctx.sums = ctx.sums, None  # scaled in place, so a second backward pass needs new ones
        factor, labels = incoming[0].to(ctx.scale.dtype), ctx.labels
        if ctx.settings.reduction == "none":  # one for each example
            labels, factor = labels._replace(s=labels.s * factor), torch.ones_like(ctx.scale)
        if sums is None:
            hidden, weight, bias = ctx.saved_tensors
            sums = _accumulate(hidden, weight, bias, labels, ctx.settings, ctx.needs_input_grad[:3])
        factor = factor * ctx.scale * (sums.level * LOG2 + ctx.log_scale).exp()
        of_hidden, of_weight, of_bias = sums.gradients
        if of_hidden is not None:
            of_hidden = _scaled(of_hidden, factor)
        if of_weight is not None:
            of_weight = _scaled(of_weight, factor * sums.room.exp2())
        if of_bias is not None:
            of_bias = (of_bias * factor).to(ctx.bias_type)
        return of_hidden, of_weight, of_bias, None, None, None


def _scaled(gradient: Tensor, factor: Tensor) -> Tensor:
    """Return gradient * factor, in place where the factor is one number; float32 holds what float16 could not."""
    if gradient.dtype == torch.float16:
        factor = factor.float().reshape(1)
    try:
        return gradient.mul_(factor)
    except RuntimeError:  # inside `vmap`: several factors, for which there is no room
        return (at_least_float32(gradient) * factor).to(gradient.dtype)


def _accumulate(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Examples, settings: Settings, wanted: tuple[bool, ...]
) -> Sums:
    """Return the sums over all chunks; of the gradients of hidden, weight and bias those that are wanted."""
    total, bound, room = (labels.s.new_zeros(()) for _ in range(3))
    surprise = torch.zeros_like(labels.s)
    level = labels.s.new_full((), -math.inf)
    units = torch.zeros_like(labels.s)
    of_hidden = torch.zeros_like(hidden) if wanted[0] else None
    of_weight = torch.zeros_like(weight) if wanted[1] else None
    of_bias = at_least_float32(torch.zeros_like(bias)) if wanted[2] and bias is not None else None
    for start in range(0, len(hidden), labels.chunk):
        part = slice(start, start + labels.chunk)
        x, y, s = hidden[part], labels.target[part], labels.s[part]
        m, push = _margin_and_push(linear(x, weight, bias), y)
        log_p, log_q = log_probabilities(m)
        weighting, taper = select_parameters((settings.weighting, settings.taper), y, weight.shape[0], y.shape)
        log_w = weighting.log_weight(log_p, log_q)
        s_active = torch.where(labels.valid[part] & (m != math.inf), s, 0.0)
        surprise[part] = torch.where(s == 0, 0.0, -s * log_p)

        before = level
        log_sw = torch.where(s_active == 0, -math.inf, log_w + s_active.abs().log())
        level = torch.maximum(level, (log_sw.amax() / LOG2).ceil())
        unit = torch.where(level == -math.inf, 0.0, level)
        shrink = (before - unit).exp2()
        sw = s_active.sign() * (log_sw - unit * LOG2).exp()
        total = total * shrink + sw.sum()
        if not any(wanted):
            del push
            continue
        units[part] = level
        d = push(sw * log_taper(log_q, taper).exp())
        if of_hidden is not None:
            torch.mm(d, weight, out=of_hidden[part])
        if of_bias is not None:
            of_bias.mul_(shrink).add_(d.sum(0, dtype=of_bias.dtype))
        if of_weight is not None:
            rescale = shrink
            if of_weight.dtype == torch.float16:
                bound = bound * shrink + (sw.abs() * torch.linalg.vector_norm(x, math.inf, 1)).sum() / 2
                before, room = room, (bound.log2().ceil() - SAFE).clamp_min(0)
                rescale, x = shrink * (before - room).exp2(), x * (-room).exp2()
            if start > 0:
                _rescale(of_weight, rescale)
            of_weight.addmm_(d.T, x)
        del d, push  # the logits, before those of the next chunk exist
    if of_hidden is not None:
        of_hidden *= (units - torch.where(level == -math.inf, 0.0, level)).exp2().to(hidden.dtype)[:, None]
    return Sums(surprise, level, total, room, [of_hidden, of_weight, of_bias])


def _margin_and_push(z: Tensor, y: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the margins of a chunk, and what turns their coefficients into the gradient of z, which is overwritten."""
    if ops.has_rows(z, y):
        row_stats = ops.operators().measure(z, y)

        def push(coefficient: Tensor) -> Tensor:
            ops.operators().emit_(z, y, row_stats, coefficient / 2)
            return z

        return row_stats[0], push
    m, pull, scale = margin_and_pull(z, y)
    return m, lambda coefficient: pull.mul_((coefficient / (2 * scale)).to(pull.dtype)[:, None]).to(z.dtype)


def _rescale(sums: Tensor, factor: Tensor) -> None:
    """Multiply sums by a factor that is mostly 1; where that can be seen for free, skip it."""
    if ops.has_rows(sums):
        ops.operators().rescale_(sums, factor)
    elif torch.compiler.is_compiling() or sums.device.type != "cpu" or factor != 1:
        sums *= factor


def _log_normaliser_of(sums: Sums, settings: Settings) -> Tensor:
    """Return log Σ s w over all chunks and the process group; -inf where nothing counts, NaN where a NaN does."""
    is_empty = (sums.total == 0) | (is_log_zero(sums.level * LOG2) & ~sums.total.isnan())
    log_z = torch.where(is_empty, -math.inf, sums.level * LOG2 + sums.total.log())
    if settings.process_group is None:
        return log_z
    top = log_z.clone()
    dist.all_reduce(top, dist.ReduceOp.MAX, settings.process_group)
    top = torch.where(top == -math.inf, 0.0, top)
    return top + over_group((log_z - top).exp(), settings.process_group).log()
