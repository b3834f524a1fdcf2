"""LinearCriterion equals Criterion of the layer's logits for any chunk size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from instances import WEIGHTINGS, name
from reweigh.criterion import Criterion
from reweigh.linear import LinearCriterion
from reweigh.weightings import CCE, DM, MAE, PerClass, TruncatedGCE, Weighting

N, D, C = 11, 5, 7


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def layer(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    shapes = ((N, D), (C, D), (C,))
    return [torch.randn(shape, generator=rng(k), dtype=dtype).requires_grad_() for k, shape in enumerate(shapes)]


def labels() -> Tensor:
    target = torch.randint(C, (N,), generator=rng(9))
    target[[2, 3, 4, 5]] = -100  # one chunk of 3 has no valid label
    return target


def check(weighting: Any, chunk: int | None, call: dict[str, Any] | None = None, **settings: Any) -> None:
    """Compare values and gradients for an incoming gradient of 2."""
    target, results = labels(), []
    for criterion in (LinearCriterion(weighting, chunk=chunk, **settings), Criterion(weighting, **settings)):
        hidden, weight, bias = layer()
        if isinstance(criterion, LinearCriterion):
            value = criterion(hidden, weight, target, bias, **(call or {}))
        else:
            value = criterion(hidden @ weight.T + bias, target, **(call or {}))
        value.backward(torch.linspace(-1, 2, N, dtype=value.dtype) if value.ndim else torch.tensor(2.0).to(value))
        results.append((value.detach(), hidden.grad, weight.grad, bias.grad))
    for ours, theirs in zip(*results, strict=True):
        assert ours is not None
        assert theirs is not None
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12 * max(1.0, float(theirs.abs().max())))


@pytest.mark.parametrize("normalise", [None, "batch"])
@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=name)
def test_equals_criterion_of_the_logits(weighting: Weighting, normalise: Any) -> None:
    check(weighting, 3, normalise=normalise)


@pytest.mark.parametrize("chunk", [1, 4, 11, 100, None])
@pytest.mark.parametrize("normalise", [None, "unit", "batch"])
def test_any_chunk_size(normalise: Any, chunk: int | None) -> None:
    check(DM(0.5, 8), chunk, normalise=normalise, taper=1e-3)


def test_weights_masks_and_reductions() -> None:
    weight = torch.linspace(0.1, 2, C, dtype=torch.float64)
    sample = torch.linspace(0, 1, N)
    check(DM(0.5, 8), 3, {"sample_weight": sample}, weight=weight)
    check(MAE(), 3, {"sample_weight": sample}, weight=weight)
    check(MAE(), 3, {"sample_weight": sample - 0.3}, weight=weight)
    check(CCE(), 3, reduction="sum")
    check(CCE(), 3, {"sample_weight": torch.zeros(N)})
    check(TruncatedGCE(k=0.999), 3, normalise="batch")


@pytest.mark.parametrize("normalise", [None, "unit", "batch"])
@pytest.mark.parametrize("weighting", [CCE(), DM(0.5, 8)], ids=repr)
def test_values_and_incoming_gradients_per_example(weighting: Weighting, normalise: Any) -> None:
    weight = torch.linspace(0.1, 2, C, dtype=torch.float64)
    settings = {"reduction": "none", "normalise": normalise}
    check(weighting, 3, **settings)
    check(weighting, 3, {"sample_weight": torch.linspace(0, 1, N)}, weight=weight, **settings)
    hidden = torch.randn(2, 4, D, generator=rng(), dtype=torch.float64, requires_grad=True)
    target = torch.randint(C, (2, 4), generator=rng(1))
    value = LinearCriterion(weighting, chunk=3, **settings)(hidden, layer()[1], target)
    expected = Criterion(weighting, **settings)((hidden @ layer()[1].T).movedim(-1, 1), target)
    torch.testing.assert_close(value, expected)
    for _ in range(2):
        ours, theirs = (torch.autograd.grad(v.square().sum(), hidden, retain_graph=True) for v in (value, expected))
        torch.testing.assert_close(ours, theirs)


def test_parameters_by_class() -> None:
    check(PerClass(DM(0.5, torch.linspace(1, 8, C, dtype=torch.float64))), 3)


def test_weights_that_grow_from_chunk_to_chunk() -> None:
    # weights from e^-200 to e^200, rising from chunk to chunk
    hidden = torch.linspace(-6, 6, N, dtype=torch.float64)[:, None].requires_grad_()
    weight = torch.tensor([[1.0], [0.0]], dtype=torch.float64, requires_grad=True)
    target = torch.zeros(N, dtype=torch.long)
    for beta in (400.0, -400.0):
        ours = torch.autograd.grad(LinearCriterion(DM(0, beta), chunk=1)(hidden, weight, target), (hidden, weight))
        theirs = torch.autograd.grad(Criterion(DM(0, beta))(hidden @ weight.T, target), (hidden, weight))
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-300)


def test_leading_dimensions_and_masks_by_sequence() -> None:
    hidden = torch.randn(2, 4, D, generator=rng(), dtype=torch.float64, requires_grad=True)
    weight, target = layer()[1], torch.randint(C, (2, 4), generator=rng(1))
    by_sequence = torch.tensor([1.0, 0.25])
    for sample in (None, by_sequence, by_sequence[:, None].expand(2, 4)):
        value = LinearCriterion(DM(0.5, 8), chunk=3)(hidden, weight, target, sample_weight=sample)
        (ours,) = torch.autograd.grad(value, hidden)
        logits = (hidden @ weight.T).movedim(-1, 1)
        (theirs,) = torch.autograd.grad(Criterion(DM(0.5, 8))(logits, target, sample_weight=sample), hidden)
        assert ours.shape == hidden.shape
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("trained", [0, 1, 2])
def test_only_inputs_that_require_grad_get_a_gradient(trained: int) -> None:
    parts = [part.detach().requires_grad_(k == trained) for k, part in enumerate(layer())]
    hidden, weight, bias = parts
    LinearCriterion(DM(0.5, 8), chunk=4)(hidden, weight, labels(), bias).backward()
    assert [part.grad is not None for part in parts] == [k == trained for k in range(3)]
    with torch.no_grad():
        assert not LinearCriterion(CCE())(hidden, weight, labels(), bias).requires_grad


def test_a_second_backward_pass_and_no_second_derivative() -> None:
    hidden, weight, bias = layer()
    value = LinearCriterion(DM(0.5, 8), chunk=4)(hidden, weight, labels(), bias)
    first = torch.autograd.grad(value, (hidden, weight, bias), retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(value, (hidden, weight, bias), retain_graph=True), first)
    with pytest.raises(RuntimeError, match="LinearCriterion has no second derivative"):
        torch.autograd.grad(LinearCriterion(CCE())(hidden, weight, labels()), weight, create_graph=True)


def test_accumulation_in_two_passes_is_exact() -> None:
    hidden, weight, _ = layer()
    target, criterion = labels(), LinearCriterion(DM(0.5, 8), chunk=2)
    parts = [slice(0, 4), slice(4, 11)]
    total = torch.stack([criterion.log_normaliser(hidden[p], weight, target[p]) for p in parts]).logsumexp(0)
    torch.testing.assert_close(total, Criterion(DM(0.5, 8)).log_normaliser(hidden @ weight.T, target))
    expected = torch.autograd.grad(criterion(hidden, weight, target), weight)[0]
    pieces = [
        torch.autograd.grad(criterion(hidden[p], weight, target[p], log_normaliser=total), weight)[0] for p in parts
    ]
    torch.testing.assert_close(sum(pieces), expected)


def test_no_valid_label_gives_zero() -> None:
    hidden, weight, bias = layer()
    for n, target in ((N, torch.full((N,), -100)), (0, torch.empty(0, dtype=torch.long))):
        for weighting in (CCE(), DM(0.5, 8)):
            value = LinearCriterion(weighting, chunk=3)(hidden[:n], weight, target, bias)
            assert value == 0
            assert not any(g.any() for g in torch.autograd.grad(value, (hidden, weight, bias)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision_and_autocast(dtype: torch.dtype) -> None:
    parts, target = layer(torch.float32), labels()
    exact = torch.autograd.grad(LinearCriterion(MAE())(*_as(parts, torch.float64)[:2], target), parts[:2])
    hidden, weight, _ = _as(parts, dtype)
    value = LinearCriterion(MAE(), chunk=4)(hidden, weight, target)
    assert value.dtype == torch.float32
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    for ours, theirs in zip(torch.autograd.grad(value, parts[:2]), exact, strict=True):
        assert (ours - theirs).norm() <= tolerance * theirs.norm()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = LinearCriterion(MAE(), chunk=4)(parts[0], parts[1], target)
        double = LinearCriterion(MAE())(*_as(parts, torch.float64)[:2], target)  # not autocast, as in torch
    assert double == LinearCriterion(MAE())(*_as(parts, torch.float64)[:2], target)
    for ours, theirs in zip(torch.autograd.grad(value, parts[:2]), exact, strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() <= 3e-2 * theirs.norm()


@pytest.mark.parametrize("chunk", [1000, None])
@pytest.mark.parametrize("normalise", [None, "batch"])
def test_float16_mean_of_many_examples_does_not_overflow(normalise: Any, chunk: int | None) -> None:
    # the sum over the batch, and over a chunk, exceeds 65504
    hidden, weight = torch.full((8192, 4), 30.0).half(), torch.zeros(3, 4).half().requires_grad_()
    bias, target = torch.zeros(3).half().requires_grad_(), torch.zeros(8192, dtype=torch.long)
    value = LinearCriterion(CCE(), normalise=normalise, chunk=chunk)(hidden, weight, target, bias)
    ours = torch.autograd.grad(value, (weight, bias))
    exact = [part.detach().double().requires_grad_() for part in (weight, bias)]
    value = Criterion(CCE(), normalise=normalise)(hidden.double() @ exact[0].T + exact[1], target)
    for gradient, expected in zip(ours, torch.autograd.grad(value, exact), strict=True):
        assert gradient.dtype == torch.float16
        torch.testing.assert_close(gradient.double(), expected, rtol=1e-2, atol=0)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_float16_under_a_scaled_loss(scale: float) -> None:
    hidden, weight, bias = (part.detach().half().requires_grad_() for part in layer())
    ours = torch.autograd.grad(LinearCriterion(CCE(), chunk=4)(hidden, weight, labels(), bias) * scale, (weight, bias))
    exact = [part.detach().double().requires_grad_() for part in (hidden, weight, bias)]
    value = Criterion(CCE())(exact[0] @ exact[1].T + exact[2], labels()) * scale
    for gradient, expected in zip(ours, torch.autograd.grad(value, exact[1:]), strict=True):
        room = torch.finfo(torch.float16).smallest_normal * 2**-10  # smallest subnormal number
        assert ((gradient.double() - expected).abs() <= room + 2e-3 * expected.abs().max()).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("size", [1e-30, 1e-8, 1e5, 1e30])
def test_mean_is_independent_of_the_scale_of_sample_weights(size: float, dtype: torch.dtype) -> None:
    parts = _as([part.detach() for part in layer()], dtype)

    def gradients(sample_weight: Tensor | None) -> tuple[Tensor, ...]:
        hidden, weight, bias = (part.clone().requires_grad_() for part in parts)
        value = LinearCriterion(CCE(), chunk=4)(hidden, weight, labels(), bias, sample_weight=sample_weight)
        return torch.autograd.grad(value, (hidden, weight, bias))

    sizes = torch.full((N,), size, dtype=torch.float64)
    torch.testing.assert_close(gradients(sizes), gradients(None), rtol=5e-3, atol=1e-3)


def test_nan_rows_with_and_without_weight() -> None:
    hidden, weight, _ = layer()
    target, criterion = torch.arange(N) % C, LinearCriterion(DM(0.5, 8), chunk=4)
    expected = torch.autograd.grad(criterion(hidden[1:], weight, target[1:]), hidden)[0]
    bad = torch.cat((torch.full((1, D), torch.nan, dtype=torch.float64), hidden.detach()[1:])).requires_grad_()
    counted = torch.ones(N)
    assert criterion.log_normaliser(bad, weight, target, sample_weight=counted).isnan()
    counted[0] = 0
    total = criterion.log_normaliser(hidden[1:], weight, target[1:])
    torch.testing.assert_close(criterion.log_normaliser(bad, weight, target, sample_weight=counted), total)
    value = criterion(bad, weight.detach(), target, sample_weight=counted)
    torch.testing.assert_close(torch.autograd.grad(value, bad)[0][1:], expected[1:])


def _as(parts: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    return [part.to(dtype) for part in parts]


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_compiles_without_graph_breaks(dtype: torch.dtype, autocast: bool, reduction: Any) -> None:
    torch.compiler.reset()
    criterion, parts = LinearCriterion(DM(0.5, 8), chunk=4, reduction=reduction), layer(dtype)
    compiled = torch.compile(criterion, fullgraph=True, backend="aot_eager")
    results = []
    for loss in (compiled, criterion):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            value = loss(*parts[:2], labels(), parts[2])
        results.append((value, *torch.autograd.grad(value.square().sum(), parts)))
    torch.testing.assert_close(*results)


def test_replacing_the_weighting() -> None:
    hidden, weight, _ = layer()
    criterion = LinearCriterion(DM(0.5, 8), normalise="unit")
    criterion.weighting = DM(2, 8)
    fresh = LinearCriterion(DM(2, 8), normalise="unit")
    ours, theirs = (torch.autograd.grad(each(hidden, weight, labels()), hidden)[0] for each in (criterion, fresh))
    assert torch.equal(ours, theirs)
    assert repr(criterion) == repr(fresh)
    criterion.weighting = DM(0.5, torch.ones(N))
    with pytest.raises(ValueError, match="must have numbers or PerClass tensors"):
        criterion(hidden, weight, labels())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_narrow_integer_labels(dtype: torch.dtype) -> None:
    hidden, weight = torch.randn(2, 3, generator=rng()), torch.randn(200, 3, generator=rng(1))
    target = torch.tensor([156 if dtype == torch.uint8 else 100, 3])  # -100 is 156 in uint8
    assert torch.equal(
        LinearCriterion(CCE())(hidden, weight, target.to(dtype)), LinearCriterion(CCE())(hidden, weight, target)
    )


def test_meta_device() -> None:
    hidden, weight, bias = (part.detach().to("meta").requires_grad_() for part in layer())
    value = LinearCriterion(DM(0.5, 8), chunk=4)(hidden, weight, labels().to("meta"), bias)
    assert [g.shape for g in torch.autograd.grad(value, (hidden, weight, bias))] == [(N, D), (C, D), (C,)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"label_smoothing": 0.1}, "label_smoothing must be 0"),
        ({"value": "objective"}, "value must be 'cross_entropy'"),
        ({"chunk": 0}, "chunk must be a number of examples"),
        ({"weighting": DM(0.5, torch.ones(N))}, "must have numbers or PerClass tensors"),
        ({"taper": torch.ones(N)}, "must have numbers or PerClass tensors"),
    ],
)
def test_bad_settings_raise(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LinearCriterion(**{"weighting": DM(0.5, 8), **settings})


def test_bad_inputs_raise() -> None:
    hidden, weight, bias = (part.detach() for part in layer())
    criterion = LinearCriterion(CCE())
    with pytest.raises(ValueError, match=r"hidden must end in weight's 5 columns, got shape \(11, 4\)"):
        criterion(hidden[:, :4], weight, labels())
    with pytest.raises(ValueError, match=r"weight must be shaped \(C, D\), got \(5,\)"):
        criterion(hidden, weight[0], labels())
    with pytest.raises(ValueError, match=r"bias must have weight's 7 rows, got shape \(6,\)"):
        criterion(hidden, weight, labels(), bias[:6])
    with pytest.raises(TypeError, match="target must hold class indices"):
        criterion(hidden, weight, torch.rand(N, C))
    with pytest.raises(ValueError, match="target must be in"):
        criterion(hidden, weight, torch.full((N,), 7))
    with pytest.raises(ValueError, match="log_normaliser is the divisor"):
        criterion(hidden, weight, labels(), log_normaliser=0.0)
    with pytest.raises(ValueError, match="weight must have one entry for each of the 7 classes"):
        LinearCriterion(CCE(), weight=torch.ones(3))(hidden, weight, labels())
    with pytest.raises(ValueError, match="sample_weight must be >= 0 under normalise='batch', got -1"):
        LinearCriterion(DM(0.5, 8))(hidden, weight, labels(), sample_weight=-torch.ones(N))
    with pytest.raises(ValueError, match="sample_weight gets no gradient from LinearCriterion"):
        criterion(hidden, weight, labels(), sample_weight=torch.ones(N, requires_grad=True))
    with torch.no_grad():
        criterion(hidden, weight, labels(), sample_weight=torch.ones(N, requires_grad=True))
