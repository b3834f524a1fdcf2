"""The training loop, from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from reweigh.batches import Loader, Resident
from reweigh.methods.protocol import Method
from reweigh.streams import mix
from reweigh.train.optimisers import prepare


@dataclass
class Progress:
    """Where a run stands: iterations done, and the training loss since the last row."""

    step: int = 0
    loss: Tensor | None = None
    seen: int = 0

    def advance(self, loss: Tensor) -> None:
        self.step += 1
        self.loss = loss.detach() if self.loss is None else self.loss + loss.detach()
        self.seen += 1

    def mean_loss(self) -> float:
        """The mean since the last call."""
        mean = float("nan") if self.loss is None else float(self.loss) / self.seen
        self.loss, self.seen = None, 0
        return mean

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "loss": self.loss, "seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step, self.loss, self.seen = state["step"], state["loss"], state["seen"]


def train(
    method: Method,
    batches: Resident | Loader,
    optimiser: torch.optim.Optimizer,
    progress: Progress,
    *,
    total: int,
    epoch: int,
    learning_rate: Callable[[int], float],
    evaluate: Callable[[int], dict[str, Any]],
    is_evaluated: Callable[[int], bool],
    is_paused: Callable[[int], bool],
    autocast: Callable[[], AbstractContextManager[Any]],
    caffe_momentum: bool = False,
    dropout_seed: int | None = None,
) -> Iterator[dict[str, Any] | None]:
    """Train to `total` iterations; yield a row where `is_evaluated`, None where `is_paused`, for the caller to save.

    Everything random is a function of the step, and all other state is in `method`, `optimiser` and `progress`: going
    on from a saved copy of the three is the same as never having stopped.

    Args:
        method: gives the loss; knows the net.
        batches: `iterate(start, stop)` gives the batch of every step.
        optimiser: over `method.trainable`.
        progress: where to start, updated in place.
        total, epoch: iterations of the run, and of one pass over the data.
        learning_rate: step -> rate.
        evaluate: iterations done -> what else a row holds.
        is_evaluated, is_paused: of iterations done.
        autocast: the context of forward passes.
        caffe_momentum: as in `prepare`.
        dropout_seed: seeds dropout at every step, where the net has any; None where it has none.
    """
    method.trainable.train()
    for batch in batches.iterate(progress.step, total):
        step = progress.step
        prepare(optimiser, learning_rate(step), step, caffe_momentum=caffe_momentum)
        with autocast(), _dropout(dropout_seed, step, batch.inputs.device):
            loss = method.loss(batch, step)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        progress.advance(loss)
        if progress.step % epoch == 0:
            method.epoch_end(progress.step // epoch - 1)
        if is_evaluated(progress.step):
            row = {"step": progress.step, "lr": learning_rate(step), "loss": progress.mean_loss()}
            yield row | evaluate(progress.step)
        elif is_paused(progress.step):
            yield None


def _dropout(seed: int | None, step: int, device: torch.device) -> AbstractContextManager[Any]:
    """The global random state that `nn.Dropout` draws from, set for this step and put back after it."""
    if seed is None:
        return torch.random.fork_rng(devices=[], enabled=False)
    return _Seeded(mix(seed, "dropout", step), device)


class _Seeded(AbstractContextManager[None]):
    def __init__(self, seed: int, device: torch.device) -> None:
        self._fork = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
        self._seed = seed

    def __enter__(self) -> None:
        self._fork.__enter__()
        torch.manual_seed(self._seed)

    def __exit__(self, *exception: Any) -> None:
        self._fork.__exit__(*exception)


def has_dropout(net: nn.Module) -> bool:
    """Whether any dropout of the net drops anything."""
    return any(isinstance(module, nn.Dropout) and module.p > 0 for module in net.modules())
