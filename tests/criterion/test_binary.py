"""Sample weights and parameters of the binary criterion: per example (first dimension), per class (second)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from reweigh import CCE, DM, BinaryCriterion, PerClass


def draw(*shape: int) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=rng, dtype=torch.float64)
    return logits, torch.rand(shape, generator=rng, dtype=torch.float64).round()


def grad_of(criterion: BinaryCriterion, logits: Tensor, target: Tensor, **call: Tensor) -> Tensor:
    z = logits.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(criterion(z, target, **call).sum(), z)
    return gradient


@pytest.mark.parametrize("criterion", [BinaryCriterion(CCE()), BinaryCriterion(DM(0.5, 8))], ids=repr)
@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (5,), (2, 3, 4, 4)], ids=str)
def test_a_sample_weight_per_example(shape: tuple[int, ...], criterion: BinaryCriterion) -> None:
    logits, target = draw(*shape)
    s = torch.arange(shape[0], dtype=torch.float64)
    column = s.reshape(-1, *(1,) * (len(shape) - 1))
    gradient = grad_of(criterion, logits, target, sample_weight=s)
    assert not gradient[0].any()
    assert gradient[1:].all()
    for s_expanded in (column, column.expand(shape)):
        torch.testing.assert_close(grad_of(criterion, logits, target, sample_weight=s_expanded), gradient)
    torch.testing.assert_close(
        criterion.log_normaliser(logits, target, s), criterion.log_normaliser(logits, target, column.expand(shape))
    )


def test_sample_weight_per_class_raises() -> None:
    logits, target = draw(4, 3)
    with pytest.raises(ValueError, match=r"sample_weight must be shaped \(4, 3\) or a leading part .* got \(3,\)"):
        BinaryCriterion(CCE())(logits, target, sample_weight=torch.ones(3))
    with pytest.raises(ValueError, match=r"^weight of shape \(4,\) does not broadcast to \(4, 3\)"):
        BinaryCriterion(CCE(), weight=torch.ones(4))(logits, target)


@pytest.mark.parametrize("shape", [(3,), (3, 3), (4, 3), (2, 3, 3), (2, 3, 4, 3)], ids=str)
def test_parameters_by_class_apply_to_the_second_dimension(shape: tuple[int, ...]) -> None:
    logits, target = draw(*shape)
    beta = torch.tensor([1.0, 4.0, 8.0], dtype=torch.float64)
    by_class = BinaryCriterion(PerClass(DM(0.5, beta)), normalise=None, reduction="none")
    gradient, dim = grad_of(by_class, logits, target), min(1, len(shape) - 1)
    for c in range(3):
        single = BinaryCriterion(DM(0.5, float(beta[c])), normalise=None, reduction="none")
        expected = grad_of(single, logits, target)
        torch.testing.assert_close(gradient.select(dim, c), expected.select(dim, c))


def test_a_wrong_number_of_classes_raises() -> None:
    logits, target = draw(4, 3)
    with pytest.raises(ValueError, match=r"PerClass: .* one entry for each of the 3 classes, got shape \(4,\)"):
        BinaryCriterion(PerClass(CCE() * torch.ones(4)))(logits, target)


def test_parameters_by_example() -> None:
    logits, target = draw(3, 3)
    weighting = CCE() * torch.tensor([1.0, 0.0, 2.0])
    gradient = grad_of(BinaryCriterion(weighting), logits, target)
    plain = grad_of(BinaryCriterion(CCE()), logits, target)
    torch.testing.assert_close(gradient, plain * torch.tensor([[1.0], [0.0], [2.0]]))


def test_a_scalar_has_one_class() -> None:
    inputs = torch.tensor(1.5), torch.tensor(1.0)
    torch.testing.assert_close(
        grad_of(BinaryCriterion(PerClass(CCE() * torch.tensor([3.0]))), *inputs),
        3 * grad_of(BinaryCriterion(CCE()), *inputs),
    )


def test_compiled_and_mapped() -> None:
    torch.compiler.reset()
    logits, target = draw(4, 3)
    s = torch.arange(4, dtype=torch.float64)
    criterion = BinaryCriterion(PerClass(DM(0.5, torch.tensor([1.0, 4.0, 8.0], dtype=torch.float64))))
    expected = grad_of(criterion, logits, target, sample_weight=s)
    compiled = torch.compile(criterion, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(grad_of(compiled, logits, target, sample_weight=s), expected)

    def gradient(s: Tensor) -> Tensor:
        return torch.func.grad(lambda z: criterion(z, target, sample_weight=s))(logits)

    torch.testing.assert_close(torch.func.vmap(gradient)(torch.stack((s, 2 * s))), expected.expand(2, 4, 3))
