"""A linear layer and its criterion in one, for vocabularies whose logits would not fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from reweigh.criterion.chunks import LOG2, Labels, accumulate, log_normaliser_of
from reweigh.criterion.emit import group_size, over_group
from reweigh.criterion.labels import check_floating, check_indices, check_tensors, over_positions
from reweigh.criterion.options import Normalise, Options, Reduction, Taper, Value, WithOptions, check_call
from reweigh.margin import at_least_float32, is_batched, is_transformed, known_labels, statistic
from reweigh.weightings import Weighting
from reweigh.weightings.compose import has_examples
from reweigh.weightings.parameter import entries

# Logits at a time: 256 MB in half precision.
CHUNK = 2**27


class LinearCriterion(WithOptions):
    """`Criterion(weighting)(hidden @ weight.T + bias, target)` without ever storing all the logits.

    Peak memory grows with a chunk of examples, not with N x C. Batch normalisation is exact, in one pass. The gradient
    of a frozen weight is not computed. DFT, the token loss of language-model trainers, is `LinearCriterion(MAE())`.

    Args:
        weighting, weight, ignore_index, normalise, taper, process_group: as in `Criterion`; `weight` has one factor
            per class.
        reduction: "mean" or "sum".
        chunk: examples at a time; None takes as many as give 2^27 logits. The weight's gradient is summed over chunks
            in the weight's type (float16 without leaving its range).
        label_smoothing, value: only as they stand; a chunk knows one label per example, and returns cross entropy.

    Its gradients are computed in the forward pass: no second derivative, no `torch.func` transforms, no forward mode.

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
        if reduction == "none":
            raise ValueError(
                "reduction must be 'mean' or 'sum', got 'none': LinearCriterion sums its gradients over the examples "
                "before it knows what each would be multiplied by"
            )
        if label_smoothing != 0:
            raise ValueError(f"label_smoothing must be 0 in LinearCriterion, got {label_smoothing}: use Criterion")
        if value != "cross_entropy":
            raise ValueError(f"value must be 'cross_entropy' in LinearCriterion, got {value!r}: use Criterion")
        if chunk is not None and chunk < 1:
            raise ValueError(f"chunk must be a number of examples, at least 1, got {chunk}")
        super().__init__(weighting, reduction, normalise, taper, value, process_group)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.chunk = chunk

    def _check_options(self, options: Options) -> None:
        if options.normalise == "class":
            raise ValueError(
                "normalise must be None, 'unit' or 'batch' in LinearCriterion, which sums its gradients over the "
                "classes before it knows what each would be divided by; got 'class'"
            )
        if has_examples(options.weighting) or has_examples(options.taper):
            raise ValueError(
                "weighting and taper must have numbers or PerClass tensors as parameters in LinearCriterion, which "
                f"meets the examples in chunks; got {options.weighting!r}, taper={options.taper!r}"
            )

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
        """The value, a scalar.

        Args:
            hidden: (..., D), what goes into the layer.
            weight, bias: (C, D) and (C), the layer.
            target: (...), class indices.
            sample_weight: a factor per example, or per leading dimension of them (a token mask, say); a constant.
            log_normaliser: log Σ s w over several micro-batches, from `log_normaliser`, to accumulate exactly.
        """
        options = self.options
        if not torch.compiler.is_compiling() and is_transformed():
            raise RuntimeError(
                "LinearCriterion is not for torch.func transforms or forward mode: its gradients are computed in the "
                "forward pass; use Criterion on the logits"
            )
        _check(hidden, weight, target, bias, sample_weight)
        check_call(options, log_normaliser, {"weight": self.weight, "sample_weight": sample_weight})
        if sample_weight is not None and sample_weight.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                "sample_weight gets no gradient from LinearCriterion; detach it, or use Criterion on the logits"
            )
        layer, labels = self._prepare(hidden, weight, target, bias, sample_weight)
        return _Linear.apply(*layer, labels, options, log_normaliser)  # type: ignore[no-any-return, no-untyped-call]

    @torch.no_grad()
    def log_normaliser(
        self,
        hidden: Tensor,
        weight: Tensor,
        target: Tensor,
        bias: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """log Σ s w of a micro-batch; `torch.logsumexp` of several is the `log_normaliser` of their union."""
        _check(hidden, weight, target, bias, sample_weight)
        layer, labels = self._prepare(hidden, weight, target, bias, sample_weight)
        options = self.options
        return log_normaliser_of(accumulate(*layer, labels, options, (False, False, False)), options)

    def _prepare(
        self, hidden: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, sample_weight: Tensor | None
    ) -> tuple[tuple[Tensor, Tensor, Tensor | None], Labels]:
        check_floating(hidden)
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
        check_indices(target, positions, num_classes, self.ignore_index)
        known, valid = known_labels(target, self.ignore_index)
        s = statistic(valid)
        if self.weight is not None:
            s = s * entries(statistic(self.weight), known)
        if sample_weight is not None:
            s = s * statistic(over_positions(sample_weight.detach(), positions))
        kind = hidden.device.type
        layer = (hidden.reshape(-1, width), weight, bias)
        # as torch's own layers, which autocast leaves in float64
        wide = hidden.dtype == torch.float64
        # some compilers cannot read whether a device has autocast; those that they compile for do
        available = torch.compiler.is_compiling() or torch.amp.is_autocast_available(kind)
        if not wide and available and torch.is_autocast_enabled(kind):
            half = torch.get_autocast_dtype(kind)
            layer = (layer[0].to(half), weight.to(half), None if bias is None else bias.to(half))
        chunk = self.chunk or max(1, CHUNK // num_classes)
        return layer, Labels(known.flatten(), s.flatten(), valid.flatten(), chunk)


class _Linear(torch.autograd.Function):
    """The value; the gradients wait in units of 2^level for the one factor that they are multiplied by."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Labels,
        options: Options,
        log_normaliser: Tensor | float | None,
    ) -> Tensor:
        ctx.save_for_backward(hidden, weight, bias)
        ctx.labels, ctx.options, ctx.bias_type = labels, options, None if bias is None else bias.dtype
        sums = accumulate(hidden, weight, bias, labels, options, ctx.needs_input_grad[:3])
        size = group_size(options.process_group)
        mass = over_group(labels.s.sum(), options.process_group)
        mean = size / torch.where(mass == 0, 1.0, mass) if options.reduction == "mean" else torch.ones_like(mass)
        if options.batch:
            log_z = log_normaliser_of(sums, options) if log_normaliser is None else log_normaliser
            log_z = torch.as_tensor(log_z, dtype=mass.dtype, device=mass.device)
            log_scale, scale = torch.where(log_z == -math.inf, 0.0, -log_z), torch.full_like(mass, size)
        else:
            log_scale, scale = torch.zeros_like(mass), mean
        ctx.gradients, ctx.room = sums.gradients, sums.room
        ctx.scale = (sums.level * LOG2 + log_scale).exp() * scale
        # a copy also in float64: compiled by torch 2.11, a value that is an intermediate, too, has zeros for gradients
        kind = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        return (sums.surprise * mean).to(kind, copy=True)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError(
                "LinearCriterion has no second derivative (create_graph=True); use Criterion on the logits"
            )
        gradients = ctx.gradients
        if gradients is None:  # the first backward pass has taken them
            hidden, weight, bias = ctx.saved_tensors
            gradients = accumulate(hidden, weight, bias, ctx.labels, ctx.options, ctx.needs_input_grad[:3]).gradients
        factor = ctx.scale * incoming[0].to(ctx.scale.dtype)  # which it would not become where there are several
        ctx.gradients = gradients if is_batched(factor) else None
        of_hidden, of_weight, of_bias = gradients
        if of_hidden is not None:
            of_hidden = _times(of_hidden, factor)
        if of_weight is not None:
            of_weight = _times(of_weight, factor * ctx.room.exp2())
        if of_bias is not None:
            of_bias = (of_bias * factor).to(ctx.bias_type)
        return of_hidden, of_weight, of_bias, None, None, None


def _check(hidden: object, weight: object, target: object, bias: object, sample_weight: object) -> None:
    check_tensors({"hidden": hidden, "weight": weight, "target": target}, bias=bias, sample_weight=sample_weight)


def _times(gradient: Tensor, factor: Tensor) -> Tensor:
    """gradient * factor in its place; in float32 where the gradient's float16 could not hold the factor."""
    if gradient.dtype == torch.float16:
        factor = factor.float().reshape(1)
    if is_batched(factor):  # several gradients, for which there is no room
        return (at_least_float32(gradient) * factor).to(gradient.dtype)
    return gradient.mul_(factor)
