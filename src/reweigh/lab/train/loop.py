"""The training loop, from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from reweigh.lab.batches import Batch, Loader, Resident
from reweigh.lab.methods.protocol import Method
from reweigh.lab.train.evaluate import Waiting
from reweigh.lab.train.optimisers import prepare
from reweigh.streams import mix


@dataclass
class Progress:
    """Where a run stands: iterations done, and the training loss since the last row."""

    step: int = 0
    loss: Tensor | None = None
    seen: int = 0

    def advance(self, loss: Tensor) -> None:
        self.step += 1
        # a copy: a captured step writes every loss to the same place
        self.loss = loss.detach().clone() if self.loss is None else self.loss + loss.detach()
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


class Eager:
    """One iteration, operation by operation: `eager(step)` trains on the batch of that step and gives the loss.

    What happens on the host (`prepare`) and what happens on the device (`learn`) are apart, so that the latter can be
    captured once and replayed. Everything random is a function of the step.

    Args:
        method: gives the loss; knows the net.
        batches: `iterate(start, stop)` gives the batch of every step.
        optimiser: over `method.trainable`.
        total: iterations of the run.
        learning_rate: step -> rate.
        autocast: the context of forward passes.
        caffe_momentum: as in `reweigh.lab.train.optimisers.prepare`.
        dropout_seed: seeds dropout at every step, where the net has any; None where it has none.
        set_parameters: step -> nothing; brings scheduled parameters that live in tensors to that step.
        share: called with the loss after the backward pass, returns the loss to record; where several processes
            train together, it also makes their gradients one.
    """

    def __init__(
        self,
        method: Method,
        batches: Resident | Loader,
        optimiser: torch.optim.Optimizer,
        *,
        total: int,
        learning_rate: Callable[[int], float],
        autocast: Callable[[], AbstractContextManager[Any]],
        caffe_momentum: bool = False,
        dropout_seed: int | None = None,
        set_parameters: Callable[[int], None] = lambda step: None,
        share: Callable[[Tensor], Tensor] = Tensor.detach,
    ) -> None:
        self.method, self.batches, self.optimiser, self.total = method, batches, optimiser, total
        self.learning_rate, self.autocast, self.set_parameters, self.share = (
            learning_rate,
            autocast,
            set_parameters,
            share,
        )
        self.caffe_momentum, self.dropout_seed = caffe_momentum, dropout_seed
        self._upcoming: tuple[int, Iterator[Batch]] | None = None

    def __call__(self, step: int) -> Tensor:
        """Train on the batch of that step; steps that follow each other are read ahead."""
        self.prepare(step)
        batch = self._batch(step)
        with _dropout(self.dropout_seed, step, batch.inputs.device):
            return self.learn(batch, step)

    def prepare(self, step: int) -> None:
        """What the host decides before an iteration: the learning rate and scheduled parameters."""
        prepare(self.optimiser, self.learning_rate(step), step, caffe_momentum=self.caffe_momentum)
        self.set_parameters(step)

    def learn(self, batch: Batch, step: int) -> Tensor:
        """Forward, backward, update: device operations alone, unless the method decides something on the host."""
        with self.autocast():
            loss = self.method.loss(batch, step)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        loss = self.share(loss)
        self.optimiser.step()
        return loss

    def _batch(self, step: int) -> Batch:
        if self._upcoming is None or self._upcoming[0] != step:
            self._upcoming = step, self.batches.iterate(step, self.total)
        upcoming = self._upcoming[1]
        self._upcoming = step + 1, upcoming
        return next(upcoming)


def train(
    iteration: Callable[[int], Tensor],
    method: Method,
    progress: Progress,
    *,
    total: int,
    epoch: int,
    learning_rate: Callable[[int], float],
    evaluate: Callable[[int], Generator[Waiting, None, dict[str, Any]]],
    is_evaluated: Callable[[int], bool],
) -> Iterator[dict[str, Any] | Waiting | None]:
    """Train to `total` iterations; yield after every one: a row where `is_evaluated`, else None.

    What `evaluate` yields comes out before the row.

    All state is in the method, its optimiser and `progress`: going on from a saved copy of the three is the same as
    never having stopped.

    Args:
        iteration: step -> loss: `Eager`, or a captured one.
        method: what is trained; told when an epoch ends.
        progress: where to start, updated in place.
        total, epoch: iterations of the run, and of one pass over the data.
        learning_rate: step -> rate, for the row.
        evaluate: iterations done -> what else a row holds.
        is_evaluated: of iterations done.
    """
    method.trainable.train()
    while progress.step < total:
        step = progress.step
        progress.advance(iteration(step))
        if progress.step % epoch == 0:
            method.epoch_end(progress.step // epoch - 1)
        if is_evaluated(progress.step):
            found = yield from evaluate(progress.step)
            # the loss last: to read it is to wait for the device, which has come here by now
            yield {"step": progress.step, "lr": learning_rate(step), "loss": progress.mean_loss()} | found
        else:
            yield None


def _dropout(seed: int | None, step: int, device: torch.device) -> AbstractContextManager[Any]:
    """The global random state that dropout draws from, set for this step and put back after it."""
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
    return any(isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 for module in net.modules())
