"""Compare the gradients of random criteria with a reference in extended precision that shares no code with them.

A gradient may differ by the rounding of its type and of the logarithms, plus what a rounding of the margin changes.
"""

from __future__ import annotations

import inspect
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from attack.processes import in_batches
from reweigh import (
    AEL,
    AGCE,
    AUL,
    CCE,
    DM,
    GCE,
    IMAE,
    MAE,
    MSE,
    SL,
    Beta,
    Criterion,
    Exponential,
    Focal,
    ForwardSymmetric,
    Normal,
    PHuber,
    Tapered,
    TruncatedGCE,
    Uniform,
)

Array = NDArray[np.longdouble]
Formula = Callable[[Array, Array], Array]
EPS = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}
FLOOR = np.longdouble("1e-4000")
TINY = {torch.float64: 1e-300, torch.float32: 1e-37, torch.bfloat16: 1e-37, torch.float16: 6e-8}


def weighting(rng: random.Random, classes: int) -> tuple[Any, Formula]:
    """Return a weighting with random parameters, and its formula w(p, q)."""
    a, b, c = rng.uniform(0, 3), rng.choice([1, 10, 50]) * rng.uniform(-1, 1), rng.uniform(0.01, 5)
    unit, above = rng.random(), 1 + rng.uniform(0.01, 5)
    share = 0.9 * unit * (1 - 1 / classes)
    off = share / (classes - 1)
    match rng.randrange(22):
        case 0 | 1:
            return DM(a, b), lambda p, q: np.exp(b * p**a * q)
        case 2:
            return DM(0, b), lambda p, q: np.exp(b * q)
        case 3:
            return Normal(unit, b), lambda p, q: np.exp(-b * p * (p - 2 * unit))
        case 4:
            return Exponential(b), lambda p, q: np.exp(b * q)
        case 5:
            return Beta(1 + a, 1 + c), lambda p, q: p**a * q**c
        case 6:
            return Uniform(), lambda p, q: np.ones_like(p)
        case 7:
            return IMAE(b), lambda p, q: np.exp(b * p * q)
        case 8:
            return CCE(), lambda p, q: 2 * q
        case 9:
            return MAE(), lambda p, q: 2 * p * q
        case 10:
            return MSE(), lambda p, q: 4 * p * q**2
        case 11:
            return GCE(c), lambda p, q: 2 * p**c * q
        case 12:
            return TruncatedGCE(c, unit), lambda p, q: np.where(p > unit, 2 * p**c * q, 0)
        case 13:
            return SL(a, c), lambda p, q: 2 * q * (a + c * p)
        case 14:
            return Focal(c), lambda p, q: 2 * q**c * (q - c * p * np.where(p > 0.5, np.log1p(-q), np.log(p + (p == 0))))
        case 15:
            return Focal(c, detach=True), lambda p, q: 2 * q ** (c + 1)
        case 16:
            return PHuber(above), lambda p, q: 2 * q * np.minimum(1, above * p)
        case 17:
            return AGCE(c, above), lambda p, q: 2 * p * q * (c + p) ** (above - 1)
        case 18:
            return AUL(above, c), lambda p, q: 2 * p * q * (above - p) ** (c - 1)
        case 19:
            return AEL(c), lambda p, q: 2 * p * q * np.exp(-p / c) / c
        case 20:
            gap = 1 - share - off
            return ForwardSymmetric(share, classes), lambda p, q: 2 * q * gap * p / (off + gap * p)
        case _:
            one, first = weighting(rng, classes)
            other, second = weighting(rng, classes)
            match rng.randrange(3):
                case 0:
                    return Tapered(one, c), lambda p, q: first(p, q) * q / (q + c)
                case 1:
                    return one * other, lambda p, q: first(p, q) * second(p, q)
            return one + c * other, lambda p, q: first(p, q) + c * second(p, q)


class Case(NamedTuple):
    """A criterion, its inputs, and what the reference needs."""

    criterion: Criterion
    formula: Formula
    logits: torch.Tensor
    target: torch.Tensor
    sample_weight: torch.Tensor | None


def draw(rng: random.Random, types: tuple[torch.dtype, ...]) -> Case:
    """Draw a case; raise ValueError where the library refuses it."""
    rows, classes = rng.choice([1, 2, 3, 8, 33]), rng.choice([2, 3, 10, 101])
    normalise, reduction = rng.choice(["auto", None, "batch", "class"]), rng.choice(["mean", "sum", "none"])
    chosen, formula = weighting(rng, classes)
    torch.manual_seed(rng.randrange(2**31))
    criterion = Criterion(
        chosen,
        weight=torch.rand(classes) + 0.1 if rng.random() < 0.2 else None,
        normalise=normalise,
        taper=rng.choice(["auto", 0.0, 0.0, 5e-7, 1e-2]),
        reduction=reduction,
        ignore_index=rng.choice([-100, 0]),
    )
    logits = torch.randn(rows, classes, dtype=torch.float64) * rng.choice([1e-3, 1, 1, 5, 30, 300])
    logits += rng.choice([0, 0, 0, 100, -1000])
    target = torch.randint(classes, (rows,))
    for row in range(rows):
        match rng.randrange(12):
            case 0:  # a masked class
                logits[row, rng.randrange(classes)] = -torch.inf
            case 1:  # fitted, or far from it
                logits[row, target[row]] += rng.choice([-1, 1]) * rng.choice([20, 90, 800])
            case 2 if rng.random() < 0.3:
                target[row] = -100
    logits[torch.arange(rows), target.clamp_min(0)] = logits[torch.arange(rows), target.clamp_min(0)].clamp_min(-6e4)
    weights = torch.rand(rows) * 2 if rng.random() < 0.3 else None
    if criterion.ignore_index != -100:
        target.clamp_min_(0)
    return Case(criterion, formula, logits.to(rng.choice(types)), target, weights)


def reference(case: Case, shift: float = 0.0) -> tuple[Array, Any]:
    """Return the gradient (N, C), with the labels' margins moved by `shift` roundings, and the size (N) of logarithms.

    NaN where all weights that are divided by underflow, which they don't in the library's logarithms.
    """
    settings, z = case.criterion.settings, case.logits.double().numpy().astype(np.longdouble)
    rows, classes = z.shape
    y = case.target.numpy()
    valid = y != case.criterion.ignore_index
    y = np.where(valid, y, 0)
    s = valid.astype(np.longdouble)
    if case.criterion.weight is not None:
        s = s * case.criterion.weight.double().numpy()[y]
    if case.sample_weight is not None:
        s = s * case.sample_weight.double().numpy()
    onehot = np.eye(classes)[y]
    others = np.where(onehot == 1, -np.inf, z)
    top = others.max(1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    powers = np.exp(others - top)
    total = powers.sum(1, keepdims=True)
    margin = z[np.arange(rows), y] - top[:, 0] - np.log(total)[:, 0]
    margin = margin + shift * (1 + np.abs(np.clip(margin, -1e4, 1e4)))
    p, q = 1 / (1 + np.exp(-margin)), 1 / (1 + np.exp(margin))
    direction = (powers / np.where(total > 0, total, 1) - onehot) / 2 * (total > 0)
    w = np.where(total[:, 0] > 0, case.formula(p, q), 0)
    taper = float(settings.taper)
    let_go = np.where(q > 0, q / np.where(q > 0, q + taper, 1), float(taper == 0))
    if settings.normalise in ("batch", "class"):
        s = s * (total[:, 0] > 0)
        group = y if settings.normalise == "class" else np.zeros_like(y)
        together = group == group[:, None]  # (N, N)
        weights = together @ (s * w)
        share = together @ s / max(s.sum(), FLOOR)
        scale = np.where(weights > FLOOR, s * w * share / np.where(weights > FLOOR, weights, 1), np.nan)
        scale = np.where(together @ s == 0, 0, scale)
    else:
        scale = s * w / (max(s.sum(), FLOOR) if settings.reduction == "mean" else 1)
    logarithms = 4 * np.abs(np.log(np.where(w > 0, w, 1))).max(initial=0) + np.abs(np.clip(margin, -1e4, 1e4))
    return (scale * let_go)[:, None] * direction, logarithms


def compare(case: Case) -> str:
    """Return what differs, or nothing."""
    kind = case.logits.dtype
    z = case.logits.clone().requires_grad_()
    value = case.criterion(z, case.target, sample_weight=case.sample_weight)
    value.sum().backward()
    assert z.grad is not None
    with np.errstate(all="ignore"):
        expected, size = reference(case)
        inner = min(EPS[kind], 2.0**-23)  # of the statistics of a row, at least float32
        moved = [np.abs(reference(case, sign * 8 * inner)[0] - expected) for sign in (-1, 1)]
    found = z.grad.double().numpy()
    # a kernel keeps the mean's gradient in float16 as large as the sum's
    most = torch.finfo(kind).max / (2 * len(expected) if kind == torch.float16 else 2)
    known = np.isfinite(expected).all(1) & (np.abs(expected).max(1) < most)
    if not np.isfinite(found[known]).all():
        return f"the gradient is not finite: {found[known & ~np.isfinite(found).all(1)][0][:3]}"
    relative = 24 * EPS[kind] + inner * size
    allowed = relative * np.abs(expected).sum(1) + 2 * np.maximum(*moved).sum(1) + TINY[kind] * expected.shape[1]
    error = np.abs(found - expected).sum(1)
    known &= np.isfinite(allowed)  # else the formula itself overflows
    if (error > allowed)[known].any():
        row = int(np.where(known, error / allowed, 0).argmax())
        return (
            f"row {row}: off by {error[row]:.3g}, allowed {allowed[row]:.3g}, |gradient| {abs(expected[row]).sum():.3g}"
        )
    return ""


def losses(backend: str, rng: random.Random, scratch: Path) -> Iterator[tuple[str, str]]:
    """Yield (outcome, details) of each case; `equal` and `refused` are good, and `plain` is one without a kernel."""
    used = 0
    types: tuple[torch.dtype, ...] = (torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)

    def prepare() -> None:
        nonlocal types
        torch.set_num_threads(1)
        if backend == "Triton":
            os.environ["TRITON_INTERPRET"] = "1"
            np.seterr(all="ignore")
            from reweigh import ops

            ops.DEVICES = ("cpu",)
            types = (torch.float32, torch.float32, torch.bfloat16, torch.float16)
            for name, function in list(vars(ops).items()):
                if inspect.isfunction(function) and name[0] != "_" and name not in ("supports", "has_rows", "form_of"):
                    setattr(ops, name, counted(function))
        else:
            from reweigh import ops

            ops.ENABLED = False

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal used
            used += 1
            return function(*arguments)

        return call

    def one(inputs: random.Random) -> tuple[str, str]:
        nonlocal used
        used = 0
        try:
            case = draw(inputs, types)
        except ValueError as error:
            return "refused", str(error)
        problem = compare(case)
        if problem:
            kind, shape = case.logits.dtype, tuple(case.logits.shape)
            return "wrong", f"{case.criterion}, reduction={case.criterion.reduction!r}, {kind} {shape}: {problem}"
        return ("equal" if used or backend == "plain" else "plain"), ""

    return in_batches(one, prepare, rng, scratch, batch=1000 if backend == "plain" else 50)
