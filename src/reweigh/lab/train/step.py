"""One training iteration: batch, loss, backward pass, update."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from reweigh.lab.batches import Batch, Loader, Resident
from reweigh.lab.methods.protocol import Method
from reweigh.lab.train.optimisers import set_learning_rate
from reweigh.streams import mix

EXCLUSIVE = threading.RLock()
"""Held by a thread while it runs a net eagerly, compiles it or captures a CUDA graph.

The random state that dropout draws from, autocast's cache of weights and torch.compile belong to the process. Only
graph replays need no lock, so that several runs in one process overlap where it matters (`reweigh.lab.run.jobs`).
"""

_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


class EagerStep:
    """One iteration, operation by operation: `eager(step)` trains on the batch of that step and returns the loss.

    Host work (`prepare`) and device work (`learn`) are separate, so that the latter can be captured once and replayed.
    All randomness is a function of the step.

    Args:
        method: computes the loss; holds the net.
        batches: `iterate(start, stop)` yields the batch of every step.
        optimiser: over `method.trainable`.
        total: iterations of the run.
        learning_rate: step -> rate.
        autocast: the context of forward passes.
        caffe_momentum: as in `reweigh.lab.train.optimisers.set_learning_rate`.
        dropout_seed: seeds dropout at every step; None where the net has no dropout.
        set_parameters: sets scheduled parameters that are tensors to their values at a step.
        average: called with the loss after the backward pass, returns the loss to record. With several processes it
            also averages their gradients.
    """

    def __init__(
        self,
        method: Method,
        batches: Resident | Loader,
        optimiser: torch.optim.Optimizer,
        *,
        total: int,
        learning_rate: Callable[[int], float],
        autocast: Callable[[], AbstractContextManager[object]],
        caffe_momentum: bool = False,
        dropout_seed: int | None = None,
        set_parameters: Callable[[int], None] = lambda step: None,
        average: Callable[[Tensor], Tensor] = Tensor.detach,
    ) -> None:
        self.method, self.batches, self.optimiser, self.total = method, batches, optimiser, total
        self.learning_rate, self.autocast = learning_rate, autocast
        self.set_parameters, self.average = set_parameters, average
        self.caffe_momentum, self.dropout_seed = caffe_momentum, dropout_seed
        self._upcoming: tuple[int, Iterator[Batch]] | None = None

    def __call__(self, step: int) -> Tensor:
        """Train on the batch of that step; consecutive steps share one iterator, which may read ahead."""
        self.prepare(step)
        batch = self._batch(step)
        with EXCLUSIVE, self._dropout(step):
            return self.learn(batch, step)

    def prepare(self, step: int) -> None:
        """Set the learning rate and scheduled parameters of that step."""
        set_learning_rate(self.optimiser, self.learning_rate(step), step, caffe_momentum=self.caffe_momentum)
        self.set_parameters(step)

    def learn(self, batch: Batch, step: int) -> Tensor:
        """Forward, backward, update: only device operations, unless the method decides something on the host."""
        with self.autocast():
            loss = self.method.loss(batch, step)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        loss = self.average(loss)
        self.optimiser.step()
        return loss

    def _batch(self, step: int) -> Batch:
        if self._upcoming is None or self._upcoming[0] != step:
            self._upcoming = step, self.batches.iterate(step, self.total)
        upcoming = self._upcoming[1]
        self._upcoming = step + 1, upcoming
        return next(upcoming)

    def _dropout(self, step: int) -> AbstractContextManager[None]:
        if self.dropout_seed is None:
            return nullcontext()
        return _seeded(mix(self.dropout_seed, "dropout", step), self.batches.device)


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global random state, and restore it afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def has_dropout(net: nn.Module) -> bool:
    """Return whether any dropout of the net has a positive probability."""
    return any(isinstance(module, _DROPOUTS) and module.p > 0 for module in net.modules())
