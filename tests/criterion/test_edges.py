"""Edge cases of the criterion: no valid label, masked classes, huge β, precisions, wrong arguments."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch

from instances import WEIGHTINGS, name
from reweigh import (
    CCE,
    DM,
    GCE,
    MAE,
    BinaryCriterion,
    Criterion,
    LinearCriterion,
    PerClass,
    Tapered,
    TruncatedGCE,
    Weighting,
)
from reweigh.emphasis import integral
from reweigh.margin import margin

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
NORMALISE = [None, "unit", "batch", "class"]


def grad_of(criterion: torch.nn.Module, logits: torch.Tensor, target: torch.Tensor, **call: object) -> torch.Tensor:
    z = logits.detach().clone().requires_grad_()
    criterion(z, target, **call).sum().backward()
    assert z.grad is not None
    return z.grad


@pytest.mark.parametrize("normalise", NORMALISE)
@pytest.mark.parametrize("weighting", [CCE(), DM(0.5, 8), TruncatedGCE()], ids=repr)
def test_no_valid_label_gives_zero(weighting: Weighting, normalise: str | None) -> None:
    criterion = Criterion(weighting, normalise=normalise)  # type: ignore[arg-type]
    for logits, target in [
        (torch.randn(4, 3), torch.full((4,), -100)),
        (torch.empty(0, 3), torch.empty(0, dtype=torch.long)),
        (torch.randn(2, 3, 0), torch.empty(2, 0, dtype=torch.long)),
    ]:
        z = logits.requires_grad_()
        value = criterion(z, target)
        value.backward()
        assert value == 0
        assert z.grad is not None
        assert not z.grad.any()


@pytest.mark.parametrize("normalise", NORMALISE)
def test_all_weights_zero_give_zero_gradients(normalise: str | None) -> None:
    logits = torch.tensor([[0.0, 3.0], [0.0, 9.0]])
    criterion = Criterion(TruncatedGCE(k=0.9), normalise=normalise)  # type: ignore[arg-type]
    assert not grad_of(criterion, logits, torch.tensor([0, 0])).any()
    zero = torch.zeros(2)
    assert not grad_of(
        Criterion(DM(0.5, 8), normalise=normalise), logits, torch.tensor([0, 0]), sample_weight=zero
    ).any()  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("normalise", [None, "batch"])
@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=name)
def test_masked_classes_equal_absent_classes(weighting: Weighting, normalise: str | None, dtype: torch.dtype) -> None:
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    masked = logits.clone()
    masked[:, 2] = -math.inf
    target = torch.tensor([0, 1, 3, 4, 0, 1])
    criterion = Criterion(0.001 * weighting, normalise=normalise)  # type: ignore[arg-type]  # e^31 exceeds float16
    grads = grad_of(criterion, masked, target)
    assert not grads[:, 2].any()
    without = grad_of(criterion, masked[:, [0, 1, 3, 4]], torch.tensor([0, 1, 2, 3, 0, 1]))
    torch.testing.assert_close(grads[:, [0, 1, 3, 4]], without, rtol=1e-2 if dtype.itemsize == 2 else 1e-5, atol=1e-6)


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=name)
def test_infinite_logits_have_finite_limits(weighting: Weighting) -> None:
    inf = math.inf
    logits = torch.tensor([[-inf, 1.0, 2.0], [5.0, -inf, -inf], [0.5, 0.1, 0.2]], dtype=torch.float64)
    grads = grad_of(Criterion(weighting, normalise=None, taper=0.0, reduction="sum"), logits, torch.zeros(3).long())
    assert not grads[1].any(), "no admissible non-target class"
    assert grads[0].isfinite().all()
    assert grads[0].abs().sum().item() == pytest.approx(weighting(0.0), rel=1e-6, abs=1e-12)
    one_hot = torch.tensor([[1.0, 0, 0]] * 3, dtype=torch.float64)
    dense = grad_of(Criterion(weighting, normalise=None, taper=0.0, reduction="sum"), logits, one_hot)
    torch.testing.assert_close(dense, grads)


@pytest.mark.parametrize("beta", [200.0, -200.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_huge_beta_under_batch_normalisation(dtype: torch.dtype, beta: float) -> None:
    logits = (torch.randn(32, 10, generator=torch.Generator().manual_seed(0)) * 4).to(dtype)
    target = torch.arange(32) % 10
    grads = grad_of(Criterion(DM(0.5, beta), taper=0.0), logits, target)
    assert grads.isfinite().all()
    assert grads.double().abs().sum().item() == pytest.approx(1, rel=2e-2 if dtype.itemsize == 2 else 1e-5)


def test_binary_criterion_equals_two_classes() -> None:
    z = torch.randn(20, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 4
    y = (torch.arange(20) % 2).double()
    for weighting in (CCE(), GCE(0.7), DM(0.5, 8)):
        binary = grad_of(BinaryCriterion(weighting), z, y)
        two = grad_of(Criterion(weighting), torch.stack((torch.zeros_like(z), z), 1), y.long())
        torch.testing.assert_close(two[:, 1], binary)


def test_probability_targets_are_the_expectation_over_labels() -> None:
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 6
    logits[0] = torch.tensor([60.0, 0, 0, 0])  # one class with p next to 1
    chance = torch.randn(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64).softmax(1)
    for weighting in (CCE(), MAE(), GCE(0.7), DM(0.5, 8)):
        criterion = Criterion(weighting, normalise=None, reduction="sum")
        expected = sum(chance[:, j : j + 1] * grad_of(criterion, logits, torch.full((5,), j)) for j in range(4))
        torch.testing.assert_close(grad_of(criterion, logits, chance), expected)
        shares = grad_of(Criterion(weighting, normalise="batch", taper=0.0), logits, chance)
        per_label = torch.stack([weighting(margin(logits, torch.full((5,), j)).sigmoid()) for j in range(4)], 1)
        torch.testing.assert_close(
            shares,
            grad_of(Criterion(weighting, normalise=None, reduction="sum", taper=0.0), logits, chance)
            / (chance * per_label).sum(),
        )


def test_parameters_by_class_and_by_example() -> None:
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = torch.tensor([0, 1, 2, 0, 1, -100])
    beta = torch.tensor([1.0, 4.0, 9.0], dtype=torch.float64)
    by_class = Criterion(PerClass(DM(0.5, beta)), normalise=None, reduction="sum")
    by_example = Criterion(DM(0.5, beta[target.clamp_min(0)]), normalise=None, reduction="sum")
    torch.testing.assert_close(grad_of(by_class, logits, target), grad_of(by_example, logits, target))
    factor = Criterion(PerClass(CCE() * beta), reduction="none")
    weighted = Criterion(CCE(), weight=beta, reduction="none")
    torch.testing.assert_close(grad_of(factor, logits, target), grad_of(weighted, logits, target))
    onehot = torch.nn.functional.one_hot(target.clamp_min(0), 3).double()
    torch.testing.assert_close(grad_of(by_class, logits[:5], onehot[:5]), grad_of(by_example, logits, target)[:5])
    unit = grad_of(Criterion(PerClass(DM(0.5, beta)), normalise="unit", reduction="sum"), logits, target)
    scale = 1 / integral(DM(0.5, beta))[target.clamp_min(0)]
    torch.testing.assert_close(unit, grad_of(by_class, logits, target) * scale[:, None])


def test_sample_weight_and_mask() -> None:
    logits = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = torch.randint(3, (4, 5), generator=torch.Generator().manual_seed(1))
    mask = torch.rand(4, 5, generator=torch.Generator().manual_seed(2)) < 0.6
    for weighting, normalise in ((CCE(), None), (DM(0.5, 8), "batch"), (DM(0.5, 8), "unit")):
        criterion = Criterion(weighting, normalise=normalise)  # type: ignore[arg-type]
        masked = grad_of(criterion, logits, target, sample_weight=mask.double())
        torch.testing.assert_close(masked, grad_of(criterion, logits, target.masked_fill(~mask, -100)))
        per_example = torch.rand(4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        spread = per_example[:, None].expand(4, 5)
        one, other = (grad_of(criterion, logits, target, sample_weight=s) for s in (per_example, spread))
        torch.testing.assert_close(one, other)


def test_nan_logits_propagate() -> None:
    logits = torch.tensor([[math.nan, 0.0], [1.0, 0.0]])
    assert grad_of(Criterion(CCE()), logits, torch.tensor([0, 0]))[0].isnan().all()
    assert Criterion(CCE())(logits, torch.tensor([0, 0])).isnan()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dense", [False, True])
def test_an_infinite_logit_of_the_label_gives_nan_as_in_torch(dense: bool, smoothing: float) -> None:
    logits = torch.tensor([[math.inf, 0.0], [1.0, 0.0]])
    target = torch.tensor([[1.0, 0.0], [1.0, 0.0]]) if dense else torch.tensor([0, 0])
    ours, theirs = (make(label_smoothing=smoothing) for make in (partial(Criterion, CCE()), torch.nn.CrossEntropyLoss))
    assert ours(logits, target).isnan()
    torch.testing.assert_close(
        grad_of(ours, logits, target), grad_of(theirs, logits, target), equal_nan=True, rtol=1e-6, atol=1e-7
    )
    assert grad_of(Criterion(DM(0.5, 8), label_smoothing=smoothing), logits, target)[0].isnan().all()
    zero = torch.zeros(2, 1)
    assert LinearCriterion(CCE())(zero, zero, torch.tensor([0, 0]), torch.tensor([math.inf, 0.0])).isnan()


@pytest.mark.parametrize("taper", [0.0, 5e-7])
@pytest.mark.parametrize("normalise", ["batch", "class"])
@pytest.mark.parametrize("weighting", [MAE(), GCE(0.7), DM(0.5, 8), DM(0, 2000), DM(0, -2000)], ids=repr)
def test_the_objective_is_finite_at_any_normaliser(weighting: Weighting, normalise: Any, taper: float) -> None:
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)) * 300
    for dtype in (torch.float32, torch.float64):
        criterion = Criterion(weighting, value="objective", normalise=normalise, taper=taper)
        z = logits.to(dtype, copy=True).requires_grad_()
        value = criterion(z, torch.tensor([0, 1, 2, 0]))
        value.backward()
        assert value.isfinite()
        assert z.grad is not None
        assert z.grad.isfinite().all()


@pytest.mark.parametrize("value", ["cross_entropy", "objective"])
@pytest.mark.parametrize("weighting", [CCE(), DM(0.5, 8)], ids=repr)
def test_nan_logits_of_an_ignored_row_do_not_propagate(weighting: Weighting, value: Any) -> None:
    logits, target = torch.tensor([[math.nan, 0.0], [1.0, 0.0]]), torch.tensor([-100, 0])
    criterion = Criterion(weighting, value=value)
    torch.testing.assert_close(criterion(logits, target), criterion(logits[1:], target[1:]))
    torch.testing.assert_close(grad_of(criterion, logits, target)[1:], grad_of(criterion, logits[1:], target[1:]))


@pytest.mark.parametrize("normalise", [None, "batch"])
def test_objective_of_masked_classes(normalise: Any) -> None:
    masked = torch.tensor([[0.3, -math.inf, 1.0], [2.0, -math.inf, 0.5]], dtype=torch.float64)
    share = torch.tensor([[0.5, 0.0, 0.5], [1.0, 0.0, 0.0]], dtype=torch.float64)
    for weighting in (CCE(), GCE(0.7), DM(0.5, 8)):
        criterion = Criterion(weighting, value="objective", normalise=normalise)
        expected = criterion(masked[:, [0, 2]], share[:, [0, 2]])
        assert expected.isfinite()
        torch.testing.assert_close(criterion(masked, share), expected)
    masked_label = torch.tensor([1, 1])
    for weighting, limit in ((MAE(), 1.0), (GCE(0.7), 1 / 0.7), (CCE(), math.inf)):
        assert Criterion(weighting, value="objective")(masked, masked_label).item() == pytest.approx(limit)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_nan_and_labels_out_of_range_raise_in_checked_mode() -> None:
    with torch.autograd.detect_anomaly(), pytest.raises(ValueError, match=r"target must be in \[0, 1\].* got 2"):
        Criterion(CCE())(torch.zeros(2, 2), torch.tensor([0, 2]))
    with torch.autograd.detect_anomaly(), pytest.raises(ValueError, match=r"got NaN at \(1, 0\)"):
        Criterion(CCE())(torch.tensor([[1.0, 0.0], [math.nan, 0.0]]), torch.tensor([0, 0]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reduction": "avg"}, "reduction must be one of 'none', 'mean', 'sum', got 'avg'"),
        ({"normalise": "sum"}, "normalise must be one of 'auto', 'batch', 'class', 'unit', None, got 'sum'"),
        ({"reduction": "sum"}, "reduction='sum' does not go with normalise='batch'"),
        ({"taper": -1.0}, "taper must be a number in"),
        ({"taper": "big"}, "taper must be one of 'auto', 'a number >= 0', got 'big'"),
        ({"value": "loss"}, "value must be one of"),
        ({"weight": torch.ones(2, 2)}, "weight must be a vector"),
    ],
)
def test_bad_settings_raise(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Criterion(DM(0.5, 8), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "weighting",
    [
        *(Tapered(DM(0.5, 8)), 2 * Tapered(DM(0.5, 8)), PerClass(Tapered(DM(0.5, torch.tensor([2.0, 8.0]))))),
        *(Tapered(DM(0.5, 8)) * DM(1, 2), Tapered(DM(0.5, 8)) + MAE(), Tapered(DM(1, 2)) + 3 * Tapered(DM(0.5, 8))),
    ],
    ids=repr,
)
def test_auto_taper_of_a_tapered_weighting_is_0(weighting: Weighting) -> None:
    assert Criterion(weighting).settings.taper == 0
    assert Criterion(weighting + DM(0.5, 8)).settings.taper == 5e-7


@pytest.mark.parametrize(
    ("logits", "target", "call", "message"),
    [
        (torch.zeros(2, 3), torch.tensor([0, 3]), {}, r"target must be in \[0, 2\] or ignore_index=-100, got 3"),
        (torch.zeros(2, 3), torch.tensor([0, -1]), {}, "got -1"),
        (torch.zeros(2, 3), torch.tensor([0]), {}, r"must be shaped \(2,\).* got \(1,\)"),
        (torch.zeros(2, 3), torch.zeros(2, 4), {}, r"logits' shape \(2, 3\), got \(2, 4\)"),
        (torch.tensor(1.0), torch.tensor(0), {}, "got a scalar"),
        (
            torch.zeros(2, 3),
            torch.tensor([0, 1]),
            {"sample_weight": torch.ones(3)},
            r"sample_weight must be shaped \(2,\)",
        ),
        (torch.zeros(2, 3), torch.tensor([0, 1]), {"sample_weight": -torch.ones(2)}, "sample_weight must be >= 0"),
    ],
)
def test_bad_inputs_raise(logits: torch.Tensor, target: torch.Tensor, call: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Criterion(DM(0.5, 8))(logits, target, **call)


def test_negative_factors_raise_under_batch_normalisation() -> None:
    z, y, below = torch.zeros(2, 3), torch.tensor([0, 1]), torch.tensor([1.0, -2.0, 1.0])
    with pytest.raises(ValueError, match=r"^weight must be >= 0 under normalise='batch', got -2"):
        Criterion(DM(0.5, 8), weight=below)(z, y)
    with pytest.raises(ValueError, match="pos_weight must be >= 0 under normalise='batch', got -2"):
        BinaryCriterion(DM(0.5, 8), pos_weight=below)(z, torch.zeros(2, 3))
    assert Criterion(DM(0.5, 8), weight=below, normalise=None)(z, y).isfinite()


def test_callables_as_weightings() -> None:
    z, y = torch.tensor([[2.0, 0.0], [0.0, 1.0]], dtype=torch.float64), torch.tensor([0, 0])
    with pytest.raises(ValueError, match=r"must return w >= 0, got -0.38.* at p = 0.88.*: <lambda>"):
        Criterion(lambda p: 0.5 - p)(z, y)
    torch.testing.assert_close(grad_of(Criterion(torch.sqrt), z, y), grad_of(Criterion(lambda p: p**0.5), z, y))
    unknown = torch.full_like(z, math.nan)
    assert grad_of(Criterion(torch.sqrt), unknown, y).isnan().all()


def test_wrong_types_and_lengths_raise() -> None:
    two = torch.tensor([0, 1])
    with pytest.raises(TypeError, match=r"logits must be floating point, got torch.int64"):
        Criterion(CCE())(torch.zeros(2, 3).long(), two)
    with pytest.raises(TypeError, match="target must hold class indices"):
        Criterion(CCE())(torch.zeros(2, 3), two.bool())
    with pytest.raises(ValueError, match="weight must have one entry for each of the 3 classes"):
        Criterion(CCE(), weight=torch.ones(4))(torch.zeros(2, 3), two)
    with pytest.raises(ValueError, match="label_smoothing must be a number in"):
        Criterion(CCE(), label_smoothing=1.5)(torch.zeros(2, 3), two)
    with pytest.raises(ValueError, match="log_normaliser is the divisor of normalise='batch'"):
        Criterion(CCE())(torch.zeros(2, 3), two, log_normaliser=0.0)
    with pytest.raises(TypeError, match="weighting must be a Weighting or a callable"):
        Criterion(DM)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"takes \(p\) or \(p, q\), got one of 3"):
        Criterion(lambda a, b, c: a)
    with pytest.raises(ValueError, match="target must have the logits' shape"):
        BinaryCriterion(CCE())(torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match=r"target must be in \[0, 1\]"):
        BinaryCriterion(CCE())(torch.zeros(2), torch.tensor([0.0, 2.0]))
