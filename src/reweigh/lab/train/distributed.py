"""Training in several processes: each takes a shard of every batch, and their gradients are averaged.

    torchrun --nproc-per-node 2 -m reweigh train ...

The batch of a step does not depend on the number of processes: rank r takes the r-th shard, and sizes differ by at
most one. A rank whose shard is empty takes one example that is ignored. Weights start equal, get the same gradients and
so stay equal. Batch norms use their own shard, as in DistributedDataParallel, and rank 0's running statistics are kept.
Sums over the batch are made in another order, so two processes agree with one to float32's precision per step (1e-12 in
float64), and are themselves exactly reproducible; with dropout, which every rank draws separately, only the latter.
"""

from __future__ import annotations

import gc
import importlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from reweigh.streams import mix

TIMEOUT = timedelta(minutes=30)  # of a collective: the others wait while rank 0 evaluates
PAUSE = 0.1  # seconds for threads to release tensors


@dataclass(frozen=True)
class Ranks:
    """The rank of this process and the number of processes; a single process by default.

    >>> [Ranks(rank, 3).shard(8) for rank in range(3)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 8, None)]
    >>> Ranks(2, 3).shard(2), Ranks(2, 3).counted(2)  # an empty shard: one example, ignored
    (slice(0, 1, None), 0)
    >>> Ranks().seed(5), Ranks(1, 2).seed(5) == Ranks(0, 2).seed(5)
    (5, False)
    """

    rank: int = 0
    size: int = 1
    local: int = 0

    @property
    def group(self) -> Any:
        """The process group, or None; looked up anew, because a reference keeps its threads alive (`leave_group`)."""
        return None if self.size == 1 else dist.group.WORLD

    @property
    def first(self) -> bool:
        """Whether this process evaluates and writes."""
        return self.rank == 0

    def seed(self, seed: int) -> int:
        """Return a seed for draws of this rank alone; the first rank's is `seed`."""
        return seed if self.first else mix(seed, "rank", self.rank)

    def shard(self, batch_size: int) -> slice:
        """Return this rank's positions in a batch; never empty."""
        start, stop = self._bounds(batch_size)
        return slice(start, stop) if stop > start else slice(0, 1)

    def counted(self, batch_size: int) -> int:
        """Return how many of them are not ignored."""
        start, stop = self._bounds(batch_size)
        return stop - start

    def _bounds(self, batch_size: int) -> tuple[int, int]:
        share, larger = divmod(batch_size, self.size)
        start = self.rank * share + min(self.rank, larger)
        return start, start + share + (self.rank < larger)

    def device(self, device: torch.device) -> torch.device:
        """Return this rank's GPU if the device is "cuda" without an index."""
        alone = self.size == 1 or device.type != "cuda" or device.index is not None
        return device if alone else torch.device("cuda", self.local)

    def any(self, flag: bool) -> bool:
        """Return whether `flag` is set on any rank; a collective call."""
        if self.size == 1:
            return flag
        answer = torch.tensor(int(flag))
        dist.all_reduce(answer, dist.ReduceOp.MAX, self.group)
        return bool(answer)

    def agree(self, value: int, what: str) -> None:
        """Raise RuntimeError if the ranks have different values; a collective call."""
        if self.size > 1:
            ends = torch.tensor([value, -value])
            dist.all_reduce(ends, dist.ReduceOp.MAX, self.group)
            if ends[0] != -ends[1]:
                raise RuntimeError(f"rank {self.rank} has {what} {value}, another {int(ends[0])} or {-int(ends[1])}")


@contextmanager
def join_ranks(device: torch.device) -> Iterator[Ranks]:
    """Join the processes that torchrun (or `supervise`) started, if any."""
    size = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    if size == 1:
        yield Ranks()
        return
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    if device.type == "cuda":
        torch.cuda.set_device(device.index if device.index is not None else local)
    # its functions have as a default the group at the time of their import, which an optimiser may trigger later
    importlib.import_module("torch.distributed.nn")
    # both, so that gradients stay on their device and flags never wait for a GPU
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    try:
        yield Ranks(rank, size, local)
    finally:
        leave_group()


def leave_group() -> None:
    """End the process group and gloo's threads."""
    # torch 2.6 waits for these threads without releasing the interpreter lock, which a thread needs to drop its last
    # tensor: a possible deadlock, unless they get the time to do so before
    time.sleep(PAUSE)
    # the threads end with the last reference to the group; one that drops a tensor while the interpreter shuts down
    # aborts the process, so no reference may be left, also not in cycles
    dist.destroy_process_group()
    gc.collect()


def gradient_averaging(parameters: Iterable[nn.Parameter], ranks: Ranks) -> Callable[[Tensor], Tensor]:
    """Return a function that averages the gradients over the ranks, and returns the average of its loss.

    Gradients and loss are sent in one message.
    """
    parameters = [parameter for parameter in parameters if parameter.requires_grad]

    def average(loss: Tensor) -> Tensor:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([part.reshape(-1) for part in (*gradients, loss.detach().to(gradients[0].dtype))])
        dist.all_reduce(flat, dist.ReduceOp.SUM, ranks.group)
        flat /= ranks.size
        start = 0
        for gradient in gradients:
            gradient.copy_(flat[start : start + gradient.numel()].view(gradient.shape))
            start += gradient.numel()
        return flat[-1]

    return average


class ShardLoss(nn.Module):
    """A mean loss over a shard, scaled so that its average over the ranks is the mean over the batch.

    Args:
        loss: logits, target -> mean over the rows.
        ranks: the ranks.
        batch_size: of all shards together.
    """

    def __init__(self, loss: nn.Module, ranks: Ranks, batch_size: int) -> None:
        super().__init__()
        self.loss, self.factor = loss, ranks.counted(batch_size) * ranks.size / batch_size

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        value: Tensor = self.loss(logits, target) * self.factor
        return value


class IgnoringCriterion(nn.Module):
    """The criterion of a rank with an empty shard: its example is padding, and gets the ignored label."""

    def __init__(self, criterion: nn.Module) -> None:
        super().__init__()
        self.criterion = criterion

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        value: Tensor = self.criterion(logits, torch.full_like(target, -100))
        return value
