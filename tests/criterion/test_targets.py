"""Targets of all integer types, probability targets, and parameters per example or position."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from reweigh import CCE, DM, Criterion, PerClass, Weighting

NARROW = [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32]


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def grad_of(criterion: nn.Module, logits: Tensor, target: Tensor, **call: object) -> Tensor:
    z = logits.detach().clone().requires_grad_()
    criterion(z, target, **call).sum().backward()
    assert z.grad is not None
    return z.grad


@pytest.mark.parametrize("num_classes", [120, 200, 300])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_narrow_integers_equal_int64(dtype: torch.dtype, num_classes: int) -> None:
    logits = draw(4, num_classes)
    highest = min(torch.iinfo(dtype).max, num_classes - 1)
    # in uint8, -100 becomes 156 and 300 becomes 44
    wide = torch.tensor([0, 44, min(156, highest), highest])
    for settings in ({}, {"label_smoothing": 0.1}, {"reduction": "none"}, {"ignore_index": 44}):
        ours, theirs = Criterion(CCE(), **settings), nn.CrossEntropyLoss(**settings)  # type: ignore[arg-type]
        torch.testing.assert_close(ours(logits, wide.to(dtype)), theirs(logits, wide))
        torch.testing.assert_close(grad_of(ours, logits, wide.to(dtype)), grad_of(theirs, logits, wide))
    batch = Criterion(DM(0.5, 8))
    torch.testing.assert_close(grad_of(batch, logits, wide.to(dtype)), grad_of(batch, logits, wide))
    torch.testing.assert_close(batch.log_normaliser(logits, wide.to(dtype)), batch.log_normaliser(logits, wide))


def test_narrow_integers_out_of_range_raise() -> None:
    with pytest.raises(ValueError, match=r"target must be in \[0, 9\] or ignore_index=-100, got 156"):
        Criterion(CCE())(draw(2, 10), torch.tensor([156, 3], dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"target must be in \[0, 299\] or ignore_index=-100, got -56"):
        Criterion(CCE())(draw(2, 300), torch.tensor([-56, 3], dtype=torch.int8))


def test_narrow_integers_compiled() -> None:
    torch.compiler.reset()
    logits, target = draw(2, 200), torch.tensor([156, 3], dtype=torch.uint8)
    compiled = torch.compile(Criterion(CCE(), reduction="none"), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(
        compiled(logits, target), nn.functional.cross_entropy(logits, target.long(), reduction="none")
    )


def test_ignore_index_with_probabilities_raises() -> None:
    logits = draw(3, 4)
    with pytest.raises(ValueError, match=r"ignore_index=0 does not go with a target of probabilities"):
        Criterion(CCE(), ignore_index=0)(logits, logits.softmax(1))
    assert Criterion(CCE(), ignore_index=-1)(logits, logits.softmax(1)).isfinite()


def test_probabilities_that_do_not_sum_to_1_agree_with_torch() -> None:
    logits = draw(3, 4)
    target = logits.softmax(1) * torch.tensor([[1.0], [0.5], [0.0]])
    for settings in ({}, {"reduction": "sum"}, {"reduction": "none"}, {"label_smoothing": 0.1}):
        ours, theirs = Criterion(CCE(), **settings), nn.CrossEntropyLoss(**settings)  # type: ignore[arg-type]
        torch.testing.assert_close(ours(logits, target), theirs(logits, target))
        torch.testing.assert_close(grad_of(ours, logits, target), grad_of(theirs, logits, target))


DENSE: list[tuple[Weighting, dict[str, Any]]] = [
    (CCE() * torch.tensor([1.0, 0.5]), {}),
    (DM(0.5, torch.tensor([1.0, 8.0])), {}),
    (DM(0.5, torch.tensor([1.0, 8.0])), {"normalise": "unit"}),
    (DM(0.5, torch.tensor([1.0, 8.0])), {"normalise": None, "value": "objective"}),
    (DM(0.5, 8.0), {"taper": torch.tensor([0.5, 1e-3])}),
    (PerClass(DM(torch.tensor([0.1, 0.5, 2.0]), 8.0)) * torch.tensor([1.0, 0.5]), {"normalise": None}),
    (DM(0.5, torch.tensor([1.0, 8.0])), {"label_smoothing": 0.1}),
]


@pytest.mark.parametrize(("weighting", "settings"), DENSE, ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 2), (2, 3, 2, 2), (2, 3, 4, 5)], ids=str)
def test_parameters_by_example_in_dense_prediction(
    shape: tuple[int, ...], weighting: Weighting, settings: dict[str, Any]
) -> None:
    """Equals a flat batch in which every position has the parameters of its image."""
    logits, (n, c, *spatial) = draw(*shape), shape
    count = logits[0, 0].numel()
    target = torch.randint(c, (n, *spatial), generator=torch.Generator().manual_seed(1))
    flat, flat_target = logits.flatten(2).transpose(1, 2).reshape(-1, c), target.flatten()

    def repeat(part: Any) -> Any:
        return part.repeat_interleave(count) if isinstance(part, Tensor) and part.ndim and len(part) == n else part

    flat_weighting = type(weighting)(*map(repeat, vars(weighting).values()))
    flat_criterion = Criterion(flat_weighting, **{name: repeat(setting) for name, setting in settings.items()})
    expected = grad_of(flat_criterion, flat, flat_target).reshape(n, count, c).transpose(1, 2).reshape(shape)
    criterion = Criterion(weighting, **settings)
    torch.testing.assert_close(grad_of(criterion, logits, target), expected)
    torch.testing.assert_close(criterion(logits, target), flat_criterion(flat, flat_target))
    if "value" not in settings:
        torch.compiler.reset()
        compiled = torch.compile(criterion, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(grad_of(compiled, logits, target), expected)


def test_a_parameter_per_position() -> None:
    logits, target = draw(2, 3, 4, 5), torch.zeros(2, 4, 5, dtype=torch.long)
    factor = torch.rand(2, 4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    plain = grad_of(Criterion(CCE()), logits, target)
    torch.testing.assert_close(grad_of(Criterion(CCE() * factor), logits, target), plain * factor[:, None])
    rows = grad_of(Criterion(CCE() * factor[:, :, 0]), logits, target)
    torch.testing.assert_close(rows, plain * factor[:, None, :, :1])
    with pytest.raises(ValueError, match=r"a tensor in a weighting .* must be shaped \(2, 4, 5\) .*, got \(5,\)"):
        Criterion(CCE() * factor[0, 0])(logits, target)


@pytest.mark.parametrize("entries", [2, 4])
def test_parameters_for_another_number_of_classes_raise(entries: int) -> None:
    by_class = PerClass(CCE() * torch.ones(entries))
    for weighting in (by_class, by_class + CCE()):
        for target in (torch.tensor([0, 1, 1]), torch.eye(3)):
            with pytest.raises(ValueError, match=r"PerClass: a tensor must have one entry for each of the 3 classes"):
                Criterion(weighting)(draw(3, 3), target)
