"""The criterion under autocast, compile, vmap, accumulation and double differentiation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

import reweigh
from reweigh import CCE, DM, GCE, Criterion, Curve, Focal, PerClass, Tapered, Weighting
from reweigh.functional import derivative_manipulation
from reweigh.linear import LinearCriterion

WEIGHTINGS = [
    CCE(),
    GCE(0.7),
    DM(0.5, 8),
    Focal(2.0),
    Tapered(DM(1, 4), 1e-3),
    Curve(((0.0, 1.0), (0.5, 2.0), (1.0, 0.0))),
]


# vmap runs one in-place operation example by example
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch.compiler.reset()  # keeps every case below the limit on recompilations


def data(n: int = 12, num_classes: int = 5, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    return torch.randn(n, num_classes, generator=rng, dtype=dtype) * 2, torch.arange(n) % num_classes


def grad_of(function: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    z = logits.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(z), z)
    return gradient


@pytest.mark.parametrize("normalise", [None, "unit", "batch", "class"])
@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=repr)
def test_compiles_without_graph_breaks(weighting: Weighting, normalise: str | None) -> None:
    logits, target = data(dtype=torch.float32)
    criterion = Criterion(weighting, normalise=normalise, weight=torch.rand(5) + 0.1)  # type: ignore[arg-type]
    compiled = torch.compile(criterion, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(
        grad_of(lambda z: compiled(z, target), logits), grad_of(lambda z: criterion(z, target), logits)
    )
    soft = logits.softmax(1)
    torch.testing.assert_close(
        grad_of(lambda z: compiled(z, soft), logits), grad_of(lambda z: criterion(z, soft), logits)
    )


@pytest.mark.slow
@pytest.mark.parametrize("normalise", [None, "batch"])
@pytest.mark.parametrize(
    "weighting", [WEIGHTINGS[0], *WEIGHTINGS[2:], PerClass(DM(0.5, torch.linspace(1, 8, 5)))], ids=repr
)
def test_compiles_with_objective_value(weighting: Weighting, normalise: str | None) -> None:
    logits, target = data(dtype=torch.float32)
    criterion = Criterion(weighting, normalise=normalise, value="objective")  # type: ignore[arg-type]
    compiled = torch.compile(criterion, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(logits, target), criterion(logits, target))
    torch.testing.assert_close(
        grad_of(lambda z: compiled(z, target), logits), grad_of(lambda z: criterion(z, target), logits)
    )


def test_compiles_per_class_binary_and_functional() -> None:
    logits, target = data(dtype=torch.float32)
    by_class = Criterion(PerClass(DM(0.5, torch.linspace(1, 8, 5))))
    binary = reweigh.BinaryCriterion(DM(0.5, 8))
    onehot = nn.functional.one_hot(target, 5).float()

    def functional(z: Tensor) -> Tensor:
        return derivative_manipulation(z, target, DM(0.5, 8), label_smoothing=0.1)

    for function in (lambda z: by_class(z, target), lambda z: binary(z, onehot), functional):
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(grad_of(compiled, logits), grad_of(function, logits))


@pytest.mark.slow
def test_compiles_with_inductor() -> None:
    logits, target = data(64, 10, torch.float32)
    criterion = Criterion(DM(0.5, 8))
    compiled = torch.compile(criterion, fullgraph=True)
    torch.testing.assert_close(
        grad_of(lambda z: compiled(z, target), logits), grad_of(lambda z: criterion(z, target), logits)
    )


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=repr)
def test_per_example_gradients_by_vmap(weighting: Weighting) -> None:
    logits, target = data()
    criterion = Criterion(weighting, normalise=None)
    each = torch.func.vmap(torch.func.grad(lambda z, y: criterion(z, y)))(logits, target)
    together = grad_of(lambda z: Criterion(weighting, normalise=None, reduction="sum")(z, target), logits)
    torch.testing.assert_close(each, together)


@pytest.mark.parametrize(
    ("weighting", "settings"),
    [
        (DM(0.5, 8), {"weight": torch.linspace(0, 2, 5)}),
        (PerClass(DM(0.5, torch.linspace(1, 8, 5))), {}),
        (DM(0.5, 8), {"value": "objective"}),
        (DM(0.5, 8), {"weight": torch.linspace(0, 2, 5), "label_smoothing": 0.1}),
    ],
    ids=["weight", "by class", "objective", "smoothing"],
)
def test_single_examples_by_vmap(weighting: Weighting, settings: dict[str, object]) -> None:
    logits, target = data()
    single = Criterion(weighting, normalise=None, reduction="sum", **settings)  # type: ignore[arg-type]
    values = torch.func.vmap(single)(logits, target)
    each = torch.func.vmap(torch.func.grad(lambda z, y: single(z, y)))(logits, target)
    rows = Criterion(weighting, normalise=None, reduction="none", **settings)  # type: ignore[arg-type]
    torch.testing.assert_close(values, rows(logits, target))
    torch.testing.assert_close(each, grad_of(lambda z: rows(z, target).sum(), logits))


@pytest.mark.parametrize("through", ["a tensor", "a function", "the taper"])
def test_objective_is_differentiable_in_parameters(through: str) -> None:
    logits, target = data()
    settings = {"normalise": None, "value": "objective", "reduction": "sum"}

    def total(parameter: Tensor, labels: Tensor) -> Tensor:
        if through == "the taper":
            return Criterion(DM(0.5, 8), taper=parameter, **settings)(logits, labels)  # type: ignore[arg-type]
        by_hand = lambda p: (parameter * p.sqrt() * (1 - p)).exp()  # noqa: E731  # one of two
        weighting = DM(0.5, parameter) if through == "a tensor" else by_hand
        return Criterion(weighting, taper=1e-3, **settings)(logits, labels)  # type: ignore[arg-type]

    parameter = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda b: total(b, target), parameter)
    one_hot = nn.functional.one_hot(target, 5).double()
    slopes = [torch.autograd.grad(total(parameter, labels), parameter) for labels in (target, one_hot)]
    torch.testing.assert_close(*slopes)


def test_vmap_over_a_parameter() -> None:
    logits, target = data()
    beta = torch.tensor([0.0, 2.0, 8.0], dtype=torch.float64)

    def gradient(b: Tensor) -> Tensor:
        return torch.func.grad(lambda z: derivative_manipulation(z, target, DM(0.5, b)))(logits)

    expected = [grad_of(lambda z, b=b: Criterion(DM(0.5, float(b)))(z, target), logits) for b in beta]
    torch.testing.assert_close(torch.func.vmap(gradient)(beta), torch.stack(expected))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("normalise", [None, "batch"])
def test_batched_gradients_of_linear_criterion(normalise: Literal["batch"] | None, dtype: torch.dtype) -> None:
    rng = torch.Generator().manual_seed(0)
    layer = [torch.randn(shape, generator=rng).to(dtype).requires_grad_() for shape in ((12, 3), (5, 3), (5,))]
    hidden, weight, bias = layer
    value = LinearCriterion(DM(0.5, 8), normalise=normalise, chunk=5)(hidden, weight, torch.arange(12) % 5, bias)
    factors = torch.tensor([1.0, -2.0, 0.0, 1e5], dtype=value.dtype)

    def gradients(factor: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(value, layer, factor, retain_graph=True)

    def batched() -> tuple[Tensor, ...]:
        return torch.autograd.grad(value, layer, factors, retain_graph=True, is_grads_batched=True)

    first, second = batched(), batched()  # before a plain backward pass uses the stored gradient
    expected = [torch.stack(each) for each in zip(*map(gradients, factors), strict=True)]
    for gradient in (first, second, batched(), torch.func.vmap(gradients)(factors)):
        for ours, each in zip(gradient, expected, strict=True):
            assert ours.dtype == dtype
            torch.testing.assert_close(ours, each, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast(dtype: torch.dtype) -> None:
    logits, target = data(dtype=torch.float32)
    features, weight = torch.eye(12)[:, :12], torch.randn(12, 5, generator=torch.Generator().manual_seed(1))
    x = features.requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        half = x @ weight
        value = Criterion(DM(0.5, 8))(half, target)
    assert half.dtype == dtype
    assert value.dtype == torch.float32
    value.backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert Criterion(CCE())(logits.to(dtype), target).dtype == torch.float32


@pytest.mark.parametrize(
    "settings", [{"normalise": each} for each in (None, "unit", "batch", "class")] + [{"label_smoothing": 0.2}]
)
@pytest.mark.parametrize("weighting", WEIGHTINGS[:-1], ids=repr)
def test_second_derivative_is_the_derivative_of_the_gradient(weighting: Weighting, settings: dict[str, object]) -> None:
    logits, target = data(3, 3)
    criterion = Criterion(weighting, **settings)  # type: ignore[arg-type]

    def gradient(z: Tensor) -> Tensor:
        return torch.autograd.grad(criterion(z, target), z, create_graph=True)[0]

    assert torch.autograd.gradcheck(gradient, logits.requires_grad_())


@pytest.mark.parametrize("normalise", [None, "batch", "class"])
def test_derivative_with_respect_to_sample_weights(normalise: str | None) -> None:
    """Meta-learning differentiates the result of a step with respect to sample weights."""
    logits, target = data(6, 3)
    criterion = Criterion(DM(0.5, 8), normalise=normalise)  # type: ignore[arg-type]
    features = torch.randn(6, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    start = torch.randn(4, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def after_one_step(s: Tensor) -> Tensor:
        weight = start.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(
            criterion(features @ weight, target, sample_weight=s), weight, create_graph=True
        )
        return nn.functional.cross_entropy(features @ (weight - 0.5 * gradient), target)

    s = torch.rand(6, generator=torch.Generator().manual_seed(4), dtype=torch.float64) + 0.2
    s[2] = 1e-3
    assert torch.autograd.gradcheck(after_one_step, s.requires_grad_())
    # the value, too
    assert torch.autograd.gradcheck(lambda w: Criterion(CCE())(logits, target, sample_weight=w), s)
    at_zero = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(Criterion(CCE(), reduction="sum")(logits, target, sample_weight=at_zero), at_zero)
    torch.testing.assert_close(slope, nn.functional.cross_entropy(logits, target, reduction="none"))


def test_accumulation_in_two_passes_is_exact() -> None:
    logits, target = data(12, 4)
    target[3] = -100
    criterion = Criterion(DM(0.5, 8))
    expected = grad_of(lambda z: criterion(z, target), logits)
    parts = [slice(0, 5), slice(5, 6), slice(6, 12)]
    total = torch.stack([criterion.log_normaliser(logits[part], target[part]) for part in parts]).logsumexp(0)
    pieces = [grad_of(lambda z, p=part: criterion(z, target[p], log_normaliser=total), logits[part]) for part in parts]
    torch.testing.assert_close(torch.cat(pieces), expected)


def test_accumulation_with_final_division_is_exact() -> None:
    logits, target = data(12, 4)
    expected = grad_of(lambda z: Criterion(DM(0.5, 8), taper=0.0)(z, target), logits)
    plain = Criterion(DM(0.5, 8), normalise=None, taper=0.0, reduction="sum")
    parts = [slice(0, 5), slice(5, 12)]
    pieces = torch.cat([grad_of(lambda z, p=part: plain(z, target[p]), logits[part]) for part in parts])
    total = torch.stack([plain.log_normaliser(logits[part], target[part]) for part in parts]).logsumexp(0).exp()
    torch.testing.assert_close(pieces / total, expected)


def test_class_weights_are_a_buffer() -> None:
    criterion = Criterion(CCE(), weight=torch.tensor([1.0, 2.0]))
    assert "weight" in criterion.state_dict()
    assert criterion.double().weight.dtype == torch.float64  # type: ignore[union-attr]
