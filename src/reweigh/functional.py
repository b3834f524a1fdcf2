"""The arithmetic of the criterion, in plain differentiable torch.

    logits, target -> margin -> w -> normaliser -> (value, gradient)

The gradient is ∂/∂z_i = s_i w(p_i) · direction_i · scale, where s = class weight x sample weight x valid, and the
scale depends on reduction and normalisation:

    |      | None or "unit"  | "batch"                         | "class", c being that of the label |
    |------|-----------------|---------------------------------|------------------------------------|
    | none | s w per example | its share s w / Σ s w           | s w / Σ_c s w · Σ_c s / Σ s        |
    | sum  | sum of s w      | refused: DN is its own divisor  | refused                            |
    | mean | divided by Σ s  | shares; DN replaces the divisor | shares                             |

`_Designed` is the only autograd function: its forward pass computes the value and the gradient, on a GPU in fused
kernels where `reweigh.ops` supports the inputs; its backward pass scales the stored gradient, or under
`create_graph=True` evaluates the formula again, so that autograd can differentiate it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

from reweigh import ops
from reweigh.checks import plain_number
from reweigh.emphasis import Density, parameter_device, potential, unit_weighting
from reweigh.margin import (
    class_dim,
    log_probabilities,
    margin,
    margin_and_pull,
    margins,
    statistic,
    unit_direction,
)
from reweigh.targets import Factors, Labels, check_tensors, one_of, read
from reweigh.weightings import Weighting, as_weighting
from reweigh.weightings.compose import is_tapered, log_taper, map_tensors, select_parameters, tensors_in
from reweigh.weightings.parameter import (
    Parameter,
    all_true,
    check,
    in_checked_mode,
    is_log_zero,
    take_rows,
)

Reduction: TypeAlias = Literal["none", "mean", "sum"]
Normalise: TypeAlias = Literal["auto", "batch", "class", "unit"] | None
Taper: TypeAlias = "Parameter | Literal['auto']"
Value: TypeAlias = Literal["cross_entropy", "objective"]

# The paper's authors divided by 2 (1 - p) + 1e-6: a taper of 5e-7, after normalisation.
PUBLISHED_TAPER = 5e-7
MAX_FLOAT32 = torch.finfo(torch.float32).max
CEILING = {torch.float64: 700, torch.float32: 80}  # of log w relative to the largest that counts


def derivative_manipulation(
    logits: Tensor,
    target: Tensor,
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
    sample_weight: Tensor | None = None,
    log_normaliser: Tensor | float | None = None,
) -> Tensor:
    """Return cross entropy, with the gradient w(p_i) · direction_i · scale.

    The arguments are those of `reweigh.Criterion` and of its call.

    >>> from reweigh.weightings import DM
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]], requires_grad=True)
    >>> derivative_manipulation(logits, torch.tensor([0, 0]), DM(lam=0.5, beta=8)).backward()
    >>> logits.grad.abs().sum(1)  # each example's share of the batch
    tensor([0.1055, 0.8945])
    """
    settings = resolve(
        weighting,
        reduction,
        normalise,
        taper,
        value,
        process_group,
        ignore_index,
        label_smoothing,
    )
    return evaluate(logits, target, settings, Factors(weight, None, sample_weight), log_normaliser)


def binary_derivative_manipulation(
    logits: Tensor,
    target: Tensor,
    weighting: Weighting | Callable[..., Tensor],
    *,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: Reduction = "mean",
    normalise: Normalise = "auto",
    taper: Taper = "auto",
    value: Value = "cross_entropy",
    process_group: Any = None,
    sample_weight: Tensor | None = None,
    log_normaliser: Tensor | float | None = None,
) -> Tensor:
    """Return binary cross entropy: every logit is a two-class problem of its own, with derivative w(p) / 2.

    The arguments are those of `reweigh.BinaryCriterion` and of its call.

    >>> from reweigh.weightings import CCE
    >>> z, y = torch.tensor([0.3, -1.0]), torch.tensor([1.0, 0.0])
    >>> ours = binary_derivative_manipulation(z, y, CCE())
    >>> bool(torch.isclose(ours, torch.nn.functional.binary_cross_entropy_with_logits(z, y)))
    True
    """
    settings = resolve(weighting, reduction, normalise, taper, value, process_group, binary=True)
    return evaluate(logits, target, settings, Factors(weight, pos_weight, sample_weight), log_normaliser)


@dataclass(frozen=True)
class Settings:
    """What a criterion does, with "auto" resolved and unit normalisation divided into the weighting."""

    weighting: Weighting
    reduction: Reduction
    normalise: Literal["batch", "class", "unit"] | None
    taper: Parameter
    value: Value
    process_group: Any
    ignore_index: int = -100
    smoothing: float = 0.0
    binary: bool = False
    parameters: tuple[Tensor, ...] = ()  # the tensors in the weighting and the taper
    has_shares: bool = False  # the gradients of a call are shares of one unit
    is_constant: bool = True  # no integral of a weighting that may change is in it


def resolve(
    weighting: Weighting | Callable[..., Tensor],
    reduction: Reduction,
    normalise: Normalise,
    taper: Taper,
    value: Value,
    process_group: Any,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    *,
    binary: bool = False,
) -> Settings:
    """Check the settings and resolve "auto" to what was published for that kind of weighting.

    A weighting that comes from a loss keeps its own scale (no normalisation, no taper); a density is normalised over
    the batch and tapered by 5e-7, unless it is `Tapered` already, also as a part.
    """
    weighting = as_weighting(weighting)
    one_of("reduction", reduction, ("none", "mean", "sum"))
    one_of("normalise", normalise, ("auto", "batch", "class", "unit", None))
    one_of("value", value, ("cross_entropy", "objective"))
    if normalise == "auto":
        normalise = "batch" if weighting.kind == "density" else None
    has_shares = normalise in ("batch", "class")
    if has_shares and reduction == "sum":
        raise ValueError(
            f"reduction='sum' does not go with normalise={normalise!r}, which is its own divisor; "
            "use reduction='mean' or 'none', or normalise='unit' or None"
        )
    if normalise == "class" and binary:
        raise ValueError("normalise='class' is for one label among several classes; a binary criterion has 'batch'")
    if isinstance(taper, str):
        one_of("taper", taper, ("auto", "a number >= 0"))
        taper = 0.0 if weighting.kind == "loss" or is_tapered(weighting) else PUBLISHED_TAPER
    check("criterion", "taper", taper, low=0)
    if not isinstance(index := plain_number(ignore_index), int):
        raise TypeError(f"ignore_index must be a whole number, got {ignore_index!r}")
    if (smoothing := plain_number(label_smoothing)) is None or not 0 <= smoothing <= 1:
        raise ValueError(f"label_smoothing must be a number in [0, 1], got {label_smoothing!r}")
    is_constant = normalise != "unit" or parameter_device(weighting) is None
    if normalise == "unit":
        weighting = unit_weighting(weighting)
    parameters = tuple([x for x, _ in tensors_in((weighting, taper))])
    others = (value, process_group, index, smoothing, binary, parameters, has_shares, is_constant)
    return Settings(weighting, reduction, normalise, taper, *others)


def evaluate(
    logits: Tensor,
    target: Tensor,
    settings: Settings,
    factors: Factors = Factors(),  # noqa: B008  (immutable)
    log_normaliser: Tensor | float | None = None,
) -> Tensor:
    """Return the value of a call; its gradient by the logits is the designed one."""
    check_call(logits, target, settings, factors, log_normaliser)
    if torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
        raise TypeError("torch.jit.trace would record this batch's labels and size: use torch.compile or torch.export")
    if log_normaliser is not None and not isinstance(log_normaliser, Tensor):
        log_normaliser = torch.tensor(log_normaliser, dtype=torch.float64)
    shown = None
    if settings.value == "objective" or any(x is not None and x.requires_grad for x in factors):
        # the value has derivatives by parameters and factors, too, as a function of fixed margins
        labels = _read(logits, target, settings, factors)
        shown, _ = _weigh(logits, _margin_of(logits.detach(), labels), labels, settings, log_normaliser)
    inputs = (shown, logits, settings, target, *factors, log_normaliser, *settings.parameters)
    function: Callable[..., Any]
    if not torch.compiler.is_compiling():
        function = _DesignedForward.apply
    elif torch.is_grad_enabled() and logits.requires_grad:
        function = _Designed.apply
    else:  # compilers call a function that nobody differentiates in another way
        function = _Designed.forward
    return function(*inputs)[0]


class _Designed(torch.autograd.Function):
    """The value; its derivative by the logits is the designed gradient, which is `size * pull`.

    `shown` is returned as the value where it is given, and has a derivative of 1.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:  # torch binds named arguments at every call
        shown, logits, settings, target, *others = inputs
        settings, factors, log_normaliser = _unpacked(settings, others)
        has_rows = ops.has_rows(logits, target)
        if has_rows and shown is None and ops.supports(logits, settings, factors, log_normaliser):
            return ops.value_and_pull(logits, target, settings, factors)
        labels = _read(logits, target, settings, factors)
        if labels.kind == "index" and not has_rows:
            m, pull, scale = margin_and_pull(logits, labels.target)
            value, force = _weigh(logits, m, labels, settings, log_normaliser)
            return value if shown is None else shown.clone(), force / scale, pull
        if labels.kind == "index":
            row_stats = ops.operators().measure(logits, labels.target)
            value, force = _weigh(logits, row_stats[0], labels, settings, log_normaliser)
            pull = ops.operators().emit(logits, labels.target, row_stats, force)
        else:
            m = _margin_of(logits, labels)
            value, force = _weigh(logits, m, labels, settings, log_normaliser)
            pull = _pull_of(logits, m, labels, force)
        return value if shown is None else shown.clone(), value.new_empty(0), pull

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        _, logits, ctx.settings, *others = inputs
        _, size, pull = output
        ctx.save_for_backward(size, pull, logits, *others)
        ctx.mark_non_differentiable(size, pull)
        ctx.is_scaled = False
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, ...]:
        size, pull, logits, *others = ctx.saved_tensors
        factor, constants = incoming[0], (None,) * (len(others) + 1)
        of_shown = factor if ctx.needs_input_grad[0] else None
        if factor is None or not ctx.needs_input_grad[1]:
            return of_shown, None, *constants
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # to be differentiated again
            gradient = _gradient(factor, logits, ctx.settings, *others)
            return of_shown, gradient.to(logits.dtype), *constants
        factor = factor * size if size.numel() else factor
        if torch.compiler.is_compiling():
            return of_shown, (_along(factor.to(pull.dtype), pull) * pull).to(logits.dtype), *constants
        if ctx.is_scaled:  # an earlier backward pass has returned the pull
            _, _, pull = _Designed.forward(None, logits, ctx.settings, *others)
        ctx.is_scaled = True
        return of_shown, _scaled(pull.data, factor).to(logits.dtype), *constants


# torch reads the signature at every call, and finds it here instead of building it
_Designed.forward.__signature__ = inspect.signature(_Designed.forward)  # type: ignore[attr-defined]


class _DesignedForward(_Designed):
    """`_Designed` with a rule for forward mode, which torch.compile does not read."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        _Designed.setup_context(ctx, inputs, output)
        ctx.save_for_forward(inputs[1], *inputs[3:])
        ctx.shape = output[0].shape

    @staticmethod
    def jvp(ctx: Any, shown: Tensor | None, along: Tensor | None, *others: Any) -> tuple[Tensor | None, None, None]:
        if any(isinstance(other, Tensor) for other in others):
            raise RuntimeError(
                "forward mode differentiates a criterion by its logits alone, not by weights or parameters"
            )
        if along is None:
            return shown, None, None
        logits, *others = ctx.saved_tensors
        slope = statistic(_gradient(1.0, logits, ctx.settings, *others) * along)
        if not ctx.shape:
            slope = slope.sum()
        elif ctx.shape != slope.shape:  # else one value for every logit
            slope = slope.sum(class_dim(logits))
        slope = slope.to(logits.dtype if logits.dtype == torch.float64 else torch.float32)
        return slope if shown is None else slope + shown, None, None


def _scaled(pull: Tensor, factor: Tensor) -> Tensor:
    """Return factor * pull, in place where there is one factor: memory for the product takes as long as filling it."""
    along = _along(factor.to(pull.dtype), pull)
    try:
        if ops.has_rows(pull):
            ops.operators().rescale_(pull, factor)
            return pull
        return pull.mul_(along)
    except RuntimeError:  # several factors, inside `vmap`
        return along * pull


def _unpacked(settings: Settings, others: Sequence[Any]) -> tuple[Settings, Factors, Tensor | None]:
    """Return the settings with the last of these tensors in the weighting and the taper; factors; log normaliser."""
    *factors, log_normaliser = others[:4]
    if settings.parameters and not torch.compiler.is_compiling():  # compiled, they are those that the settings have
        remaining = iter(others[4:])
        weighting, taper = map_tensors((settings.weighting, settings.taper), lambda *_: next(remaining))
        settings = replace(settings, weighting=weighting, taper=taper)
    return settings, Factors(*factors), log_normaliser


def _gradient(factor: Tensor | float, logits: Tensor, settings: Settings, target: Tensor, *others: Any) -> Tensor:
    """Return the designed gradient for an incoming factor per value, shaped like the logits, with a graph."""
    settings, factors, log_normaliser = _unpacked(settings, others)
    labels = _read(logits, target, settings, factors)
    m = _margin_of(logits, labels)
    _, force = _weigh(logits, m, labels, settings, log_normaliser)
    return _pull_of(logits, m, labels, force * factor)


def _along(factor: Tensor, logits: Tensor) -> Tensor:
    """Return a factor per position with the dimension of the classes."""
    return factor.unsqueeze(class_dim(logits)) if 0 < factor.ndim < logits.ndim else factor


def _margin_of(logits: Tensor, labels: Labels) -> Tensor:
    if labels.kind == "index":
        return margin(logits, labels.target)
    if labels.kind == "probabilities":
        return margins(logits)
    z = statistic(logits)
    return torch.stack((z, -z))


def _pull_of(logits: Tensor, m: Tensor, labels: Labels, force: Tensor) -> Tensor:
    """Return Σ force · (softmax over the others - onehot) over the labels of every position, shaped like the logits."""
    dim = class_dim(logits)
    if labels.kind == "index":
        direction = unit_direction(logits, labels.target)
        return (2 * force).unsqueeze(dim).to(direction.dtype) * direction
    if labels.kind == "binary":
        return force[1] - force[0]
    # at class k: p_k Σ_{j ≠ k} force_j / q_j - force_k; only the top class t can have a small q, and p_k / q_t, which
    # is below 1 for every other class, comes from the logarithms
    log_p, log_q = log_probabilities(m)
    top = m.detach().argmax(0, keepdim=True)
    is_top = torch.zeros_like(m, dtype=torch.bool).scatter(0, top, True)
    ratio = (force / log_q.exp().masked_fill(is_top, 1.0)).masked_fill(is_top, 0.0)
    of_top, log_q_top = force.gather(0, top), log_q.gather(0, top)
    alone = log_q_top == -math.inf  # no other class is admissible
    to_top = (log_p - log_q_top.masked_fill(alone, 0.0)).exp().masked_fill(is_top | alone, 0.0)
    gradient = log_p.exp() * (ratio.sum(0, keepdim=True) - ratio) + to_top * of_top - force
    return gradient.movedim(0, dim)


def _weigh(
    logits: Tensor, m: Tensor, labels: Labels, settings: Settings, log_normaliser: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the value of a call, one number or one for each position, and the force of every label.

    The force is what softmax over the others - onehot, twice the unit direction, is multiplied by: s w · scale / 2.
    """
    s, is_idle = labels.s, _is_idle(m, labels)
    weighting, taper = _parameters_of(labels, settings)
    log_p, log_q = log_probabilities(m)
    log_w = weighting.log_weight(log_p, log_q).masked_fill(is_idle, -math.inf)
    mean = _mean(labels, settings) if settings.reduction == "mean" else 1.0
    scale = group_size(settings.process_group) if settings.has_shares else mean
    log_sw = _log_shares(log_w, is_idle, labels, settings, log_normaliser) if settings.has_shares else log_w
    if isinstance(taper, Tensor) or taper > 0:
        log_sw = log_sw + log_taper(log_q, taper)
    force = _times(s, log_sw.exp()) * (scale / 2)
    if settings.value == "cross_entropy":
        terms = _times(s, -log_p)
        if settings.reduction == "mean":
            terms = terms * mean
    else:
        if settings.has_shares:
            log_z = _log_normaliser(log_w, is_idle, labels, settings, log_normaliser)
            weighting = Density(weighting, log_z.detach())
        terms = _times(s, potential(weighting, m.detach(), taper).to(log_p.dtype) * scale)
    if settings.reduction != "none":
        terms = terms.sum()
    elif labels.kind != "index":
        terms = terms.sum(0)
    if settings.value == "objective" and logits.dtype != torch.float64:  # finite in float64, and so in float32
        terms = torch.where(terms.isinf(), terms, terms.clamp(-MAX_FLOAT32, MAX_FLOAT32))
    return terms.to(logits.dtype if logits.dtype == torch.float64 else torch.float32), force


def _log_shares(
    log_w: Tensor, is_idle: Tensor, labels: Labels, settings: Settings, log_normaliser: Tensor | None
) -> Tensor:
    """Return log w less the logarithm of what batch normalisation divides by; -inf where w is 0, also if all are."""
    if log_normaliser is None and labels.s is None and settings.process_group is None and settings.normalise == "batch":
        is_zero = is_log_zero(log_w)
        known = log_w.masked_fill(is_zero, torch.finfo(log_w.dtype).min)
        return known.flatten().log_softmax(0).view_as(log_w).masked_fill(is_zero, -math.inf)
    return log_w - _log_normaliser(log_w, is_idle, labels, settings, log_normaliser)


def _log_normaliser(log_w: Tensor, is_idle: Tensor, labels: Labels, settings: Settings, given: Tensor | None) -> Tensor:
    """Return the logarithm of what is divided by, 0 where that is 0: weights of 0 stay 0."""
    log_z = _log_total(log_w, is_idle, labels, settings) if given is None else given.to(log_w.device, log_w.dtype)
    return log_z.masked_fill(is_log_zero(log_z), 0.0)


def _parameters_of(labels: Labels, settings: Settings) -> tuple[Weighting, Parameter]:
    """Return weighting and taper with parameters by class or example aligned with the labels."""
    parts = (settings.weighting, settings.taper)
    if not settings.parameters:
        return parts
    chosen: tuple[Weighting, Parameter] = select_parameters(parts, labels.classes, labels.num_classes, labels.positions)
    return chosen


def _mean(labels: Labels, settings: Settings) -> Tensor | float:
    """Return one over what a mean divides by; a mean over nothing divides by 1."""
    divisor, group = labels.divisor, settings.process_group
    if group is not None:
        divisor = over_group(torch.as_tensor(divisor, dtype=torch.float64, device=labels.target.device), group)
    if isinstance(divisor, Tensor):
        return group_size(group) / torch.where(divisor == 0, 1.0, divisor)
    return group_size(group) / (divisor or 1.0)


def _read(logits: Tensor, target: Tensor, settings: Settings, factors: Factors) -> Labels:
    return read(logits, target, factors, settings.ignore_index, settings.smoothing, settings.binary)


def _is_idle(m: Tensor, labels: Labels) -> Tensor:
    """Return where a label has no derivative: it is ignored, or no other class is admissible."""
    return m == math.inf if labels.valid is None else ~labels.valid | (m == math.inf)


def _times(s: Tensor | None, x: Tensor) -> Tensor:
    """Return s x, where a label with s = 0 adds nothing, not even an infinity or NaN; x where s is None.

    A finite x stays in the graph, so that the product has its derivative at s = 0.
    """
    return x if s is None else s * torch.where(s == 0, x.nan_to_num(0.0, 0.0, 0.0), x)


def _log_total(log_w: Tensor, is_idle: Tensor, labels: Labels, settings: Settings) -> Tensor:
    """Return the logarithm of what a call divides by: one number, or within classes one for each label."""
    s, group = labels.s, settings.process_group
    s = (torch.ones_like(log_w) if s is None else s).masked_fill(is_idle, 0.0)
    if settings.normalise == "class":
        return log_class_totals(log_w, s, labels.classes, labels.num_classes, group)
    return log_total(log_w, s, group)


def log_total(log_w: Tensor, s: Tensor, group: Any) -> Tensor:
    """Return log Σ s w over the batch and the process group; -inf where nothing counts, NaN where a NaN does.

    Relative to the largest weight that counts, so that no β overflows, and with s outside the logarithm, so that it
    can be differentiated at s = 0.
    """
    top = log_w.detach().masked_fill(s == 0, -math.inf)
    top = top.amax() if top.numel() else top.new_full((), -math.inf)
    if group is not None:
        dist.all_reduce(top, dist.ReduceOp.MAX, group)
    top = torch.where(is_log_zero(top), 0.0, top)
    # the ceiling only meets labels with s = 0, whose infinite weight must not become 0 * inf
    w = (log_w - top).clamp_max(CEILING[log_w.dtype]).exp()
    total = over_group(_times(s, w).sum(), group)
    is_empty = total == 0
    return torch.where(is_empty, -math.inf, top + torch.where(is_empty, 1.0, total).log())


def log_class_totals(log_w: Tensor, s: Tensor, index: Tensor, num_classes: int, group: Any = None) -> Tensor:
    """Return what the s w of every label is divided by: L_c = log Σ_c s w - log (Σ_c s / Σ s), its class being c.

    So a class has that share of the gradient which it has of s, and w decides how it is divided within the class. A
    label whose class weighs nothing has -inf.

    Args:
        log_w: of every label, any shape; -inf where there is no derivative.
        s: class weight x sample weight x valid; 0 where there is no derivative.
        index: the class of every label; it and s broadcast to log_w.
        num_classes: C.
        group: of processes whose labels count together.

    >>> log_w, y = torch.tensor([0.0, 1.0, 5.0]), torch.tensor([0, 0, 1])
    >>> (log_w - log_class_totals(log_w, torch.ones(3), y, 2)).exp()
    tensor([0.1793, 0.4874, 0.3333])
    """
    where = index.expand(log_w.shape).reshape(-1)

    def per_class(x: Tensor) -> Tensor:
        own = x.new_zeros(num_classes).index_add(0, where, x.expand(log_w.shape).reshape(-1))
        return over_group(own, group)

    top = log_w.detach().masked_fill(s == 0, -math.inf).reshape(-1)
    top = top.new_full((num_classes,), -math.inf).scatter_reduce(0, where, top, "amax")
    if group is not None:
        dist.all_reduce(top, dist.ReduceOp.MAX, group)
    top = torch.where(is_log_zero(top), 0.0, top)
    w = (log_w - take_rows(top, index)).clamp_max(CEILING[log_w.dtype]).exp()
    total, mass = per_class(_times(s, w)), per_class(s)
    is_empty, everything = total == 0, mass.sum()
    share = torch.where(is_empty, 1.0, mass / torch.where(everything == 0, 1.0, everything))
    of_class = torch.where(is_empty, -math.inf, top + torch.where(is_empty, 1.0, total).log() - share.log())
    return take_rows(of_class, index)


def group_size(group: Any) -> float:
    return 1.0 if group is None else float(dist.get_world_size(group))


def over_group(local: Tensor, group: Any) -> Tensor:
    """Return the sum over the process group; the other ranks' part is a constant to autograd."""
    if group is None:
        return local
    everywhere = local.detach().clone()
    dist.all_reduce(everywhere, dist.ReduceOp.SUM, group)
    return local + (everywhere - local.detach())


def check_call(
    logits: Tensor, target: Tensor, settings: Settings, factors: Factors, log_normaliser: Tensor | float | None
) -> None:
    """Refuse what is no tensor, logits that are no numbers, and factors that don't go with the normalisation."""
    named = {"weight": factors.weight, "pos_weight": factors.pos_weight, "sample_weight": factors.sample_weight}
    check_tensors({"logits": logits, "target": target}, named)
    if not logits.is_floating_point():
        raise TypeError(f"logits must be floating point, got {logits.dtype}")
    if logits.ndim == 0 and not settings.binary:
        raise ValueError("logits must be shaped (C), (N, C) or (N, C, d1, ...), got a scalar")
    if in_checked_mode() and not all_true(~logits.isnan()):
        where = tuple(logits.isnan().nonzero()[0].tolist())
        raise ValueError(f"logits must not be NaN under torch.autograd.detect_anomaly, got NaN at {where}")
    if log_normaliser is not None and settings.normalise != "batch":
        raise ValueError(
            "log_normaliser is the divisor of normalise='batch'; this criterion does not normalise over the batch"
        )
    if settings.has_shares:
        for name, factor in named.items():
            if factor is not None and not all_true(factor.detach() >= 0):
                least = factor.min().item()
                raise ValueError(f"{name} must be >= 0 under normalise={settings.normalise!r}, got {least:g}")


@torch.no_grad()
def log_normaliser_of(logits: Tensor, target: Tensor, settings: Settings, factors: Factors) -> Tensor:
    """Return log Σ s w of a call and its process group, as batch normalisation would divide by."""
    check_call(logits, target, settings, factors, None)
    if settings.normalise == "class":
        raise ValueError("log_normaliser adds up over micro-batches under normalise='batch', not under 'class'")
    labels = _read(logits, target, settings, factors)
    m = _margin_of(logits, labels)
    weighting, _ = _parameters_of(labels, settings)
    is_idle = _is_idle(m, labels)
    log_w = weighting.log_weight(*log_probabilities(m)).masked_fill(is_idle, -math.inf)
    log_z = _log_total(log_w, is_idle, labels, settings)
    return torch.where(is_log_zero(log_z), -math.inf, log_z)


class BatchStats(NamedTuple):
    """What a criterion does with a batch, shaped like its positions.

    Attributes:
        p: probability of the label (its expectation for probability targets); NaN where the label is ignored.
        w: the weight w(p), after unit normalisation where asked for, before class and sample weights and taper; NaN
            where the label is ignored.
        effective_size: (Σ g)² / Σ g² of the emitted norms g: how many examples the gradient really comes from. Where a
            target spreads over several labels, whose directions partly cancel, g is the norm of their sum.
        share: each position's part of the batch's gradient; sums to 1, or is 0 throughout.
    """

    p: Tensor
    w: Tensor
    effective_size: Tensor
    share: Tensor


@torch.no_grad()
def batch_stats(
    logits: Tensor,
    target: Tensor,
    weighting: Weighting | Callable[..., Tensor],
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    normalise: Normalise = "auto",
    taper: Taper = "auto",
    sample_weight: Tensor | None = None,
) -> BatchStats:
    """Return who counts how much in a batch; the arguments are those of `reweigh.Criterion`.

    >>> from reweigh.weightings import CCE
    >>> logits = torch.tensor([0.9, 0.5, 0.1]).logit()[:, None] * torch.tensor([[1.0, 0.0]])
    >>> batch_stats(logits, torch.zeros(3, dtype=torch.long), CCE()).share
    tensor([0.0667, 0.3333, 0.6000], dtype=torch.float64)
    """
    settings = resolve(weighting, "mean", normalise, taper, "cross_entropy", None, ignore_index, label_smoothing)
    factors = Factors(weight, None, sample_weight)
    check_call(logits, target, settings, factors, None)
    labels = _read(logits, target, settings, factors)
    m = _margin_of(logits, labels)
    log_p, log_q = log_probabilities(m)
    weighting, chosen_taper = _parameters_of(labels, settings)
    log_w = weighting.log_weight(log_p, log_q)
    # relative to the largest: a batch of examples that are all fitted has shares although every norm underflows
    log_norm = log_w + log_taper(log_q, chosen_taper)
    is_idle = _is_idle(m, labels)
    if settings.normalise == "class":
        log_z = _log_total(log_w.masked_fill(is_idle, -math.inf), is_idle, labels, settings)
        log_norm = log_norm - log_z.masked_fill(is_log_zero(log_z), 0.0)
    counts = ~is_idle if labels.s is None else ~is_idle & (labels.s > 0)
    if labels.s is not None:
        log_norm = log_norm + labels.s.log()
    log_norm = log_norm.masked_fill(~counts, -math.inf)
    top = log_norm.amax() if log_norm.numel() else log_norm.new_zeros(())
    norm = (log_norm - top.masked_fill(is_log_zero(top), 0.0)).exp()
    p, w = log_p.exp(), log_w.exp().expand_as(m)
    known = torch.ones_like(m, dtype=torch.bool) if labels.valid is None else labels.valid
    if labels.kind == "probabilities" and labels.s is not None:
        mass = labels.s.sum(0)
        chance = labels.s / torch.where(mass == 0, 1.0, mass)
        p, w = (chance * p).sum(0), torch.where(counts, chance * w, 0.0).sum(0)
        norm = _pull_of(statistic(logits), m, labels, norm).abs().sum(class_dim(logits))
        norm = torch.where(counts.any(0), norm, 0.0)
        known = (mass != 0) if labels.valid is None else labels.valid & (mass != 0)
    total = norm.sum()
    share = norm / torch.where(total == 0, 1.0, total)
    size = share.sum().square() / share.square().sum().clamp_min(1e-300)
    return BatchStats(torch.where(known, p, torch.nan), torch.where(known, w, torch.nan), size, share)
