"""Loops that call a loss with logits and targets: Accelerate, Ignite and timm."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.utils.data import DataLoader, TensorDataset

from reweigh import CCE, GCE, BinaryCriterion, Criterion


def problem() -> tuple[nn.Module, TensorDataset]:
    torch.manual_seed(0)
    return nn.Linear(4, 3), TensorDataset(torch.randn(24, 4), torch.arange(24) % 3)


def by_hand(size: int) -> Tensor:
    """Return the parameters after one pass in batches of this size."""
    net, data = problem()
    optimiser, criterion = torch.optim.SGD(net.parameters(), lr=0.5), Criterion(GCE(0.7))
    for x, y in DataLoader(data, batch_size=size):
        optimiser.zero_grad()
        criterion(net(x), y).backward()
        optimiser.step()
    return torch.cat([each.detach().flatten() for each in net.parameters()])


def test_accelerate_accumulates() -> None:
    accelerate = pytest.importorskip("accelerate")
    net, data = problem()
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=3)
    criterion, optimiser = Criterion(GCE(0.7)), torch.optim.SGD(net.parameters(), lr=0.5)
    net, optimiser, loader = accelerator.prepare(net, optimiser, DataLoader(data, batch_size=4))
    for x, y in loader:
        with accelerator.accumulate(net):
            accelerator.backward(criterion(net(x), y))
            optimiser.step()
            optimiser.zero_grad()
    found = torch.cat([each.detach().flatten() for each in net.parameters()])
    torch.testing.assert_close(found, by_hand(12))


def test_ignite_trains() -> None:
    engine = pytest.importorskip("ignite.engine")
    net, data = problem()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    trainer = engine.create_supervised_trainer(net, optimiser, Criterion(GCE(0.7)))
    trainer.run(DataLoader(data, batch_size=8), max_epochs=1)
    found = torch.cat([each.detach().flatten() for each in net.parameters()])
    torch.testing.assert_close(found, by_hand(8))


def timm_loss() -> Any:
    """Return timm's losses; timm needs torchvision, which is not among the packages of these tests."""
    return pytest.importorskip("timm.loss", exc_type=ImportError)


def test_the_losses_of_timm() -> None:
    timm = timm_loss()
    logits, target = torch.randn(8, 5), torch.randint(5, (8,))
    soft = torch.rand(8, 5).softmax(1)
    ours = Criterion(CCE(), label_smoothing=0.1)(logits, target)
    torch.testing.assert_close(ours, timm.LabelSmoothingCrossEntropy(0.1)(logits, target))
    torch.testing.assert_close(Criterion(CCE())(logits, soft), timm.SoftTargetCrossEntropy()(logits, soft))
    binary = BinaryCriterion(CCE())(logits, one_hot(target, 5).float())
    torch.testing.assert_close(binary, timm.BinaryCrossEntropy(smoothing=0.0)(logits, target))


def test_index_targets_of_a_binary_loss_are_refused() -> None:
    with pytest.raises(ValueError, match="target"):
        BinaryCriterion(CCE())(torch.randn(8, 5), torch.randint(5, (8,)).float())
