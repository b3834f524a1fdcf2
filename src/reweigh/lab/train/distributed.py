"""Several processes train one net: each takes a share of every batch, and their gradients are made one.

    torchrun --nproc-per-node 2 -m reweigh train ...

The batch of a step is the run's, whatever the number of processes: rank r takes its r-th part, in order, and the parts
may differ in size by one. A rank for which no example is left takes one that does not count. Weights start equal, get
the same gradients and so stay equal; batch norms see their own part alone, as in DistributedDataParallel, and rank 0's
running statistics are the ones that are kept. What is left to rounding: a sum over the batch is made in another order,
so two processes agree with one to float32's precision per step (to 1e-12 in float64), and exactly with themselves; with
dropout, of which every rank draws its own, only the latter.
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

TIMEOUT = timedelta(minutes=30)  # of a collective: rank 0 evaluates while the others wait
PAUSE = 0.1  # seconds in which threads drop what they hold


@dataclass(frozen=True)
class Ranks:
    """Which process this is, among how many; alone by default.

    >>> [Ranks(rank, 3).shard(8) for rank in range(3)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 8, None)]
    >>> Ranks(2, 3).shard(2), Ranks(2, 3).counted(2)  # nothing is left: one example that does not count
    (slice(0, 1, None), 0)
    >>> Ranks().seed(5), Ranks(1, 2).seed(5) == Ranks(0, 2).seed(5)
    (5, False)
    """

    rank: int = 0
    size: int = 1
    local: int = 0

    @property
    def group(self) -> Any:
        """The process group, or None alone; looked up, since who holds it keeps its threads alive (see `joined`)."""
        return None if self.size == 1 else dist.group.WORLD

    @property
    def first(self) -> bool:
        """Whether this is the process that evaluates and writes."""
        return self.rank == 0

    def seed(self, seed: int) -> int:
        """For what every rank draws by itself; the first one's is what it is alone."""
        return seed if self.first else mix(seed, "rank", self.rank)

    def shard(self, batch_size: int) -> slice:
        """The positions of a batch that are this rank's; never empty."""
        start, stop = self._bounds(batch_size)
        return slice(start, stop) if stop > start else slice(0, 1)

    def counted(self, batch_size: int) -> int:
        """How many of them count."""
        start, stop = self._bounds(batch_size)
        return stop - start

    def _bounds(self, batch_size: int) -> tuple[int, int]:
        share, larger = divmod(batch_size, self.size)
        start = self.rank * share + min(self.rank, larger)
        return start, start + share + (self.rank < larger)

    def device(self, device: torch.device) -> torch.device:
        """This rank's own GPU where the run says only "cuda"."""
        alone = self.size == 1 or device.type != "cuda" or device.index is not None
        return device if alone else torch.device("cuda", self.local)

    def any(self, flag: bool) -> bool:
        """Whether `flag` is set on any rank; asked by all of them at the same place."""
        if self.size == 1:
            return flag
        answer = torch.tensor(int(flag))
        dist.all_reduce(answer, dist.ReduceOp.MAX, self.group)
        return bool(answer)

    def agree(self, value: int, what: str) -> None:
        """Refuse to go on where the ranks don't have the same number."""
        if self.size > 1:
            ends = torch.tensor([value, -value])
            dist.all_reduce(ends, dist.ReduceOp.MAX, self.group)
            if ends[0] != -ends[1]:
                raise RuntimeError(f"rank {self.rank} has {what} {value}, another {int(ends[0])} or {-int(ends[1])}")


@contextmanager
def joined(device: torch.device) -> Iterator[Ranks]:
    """This process's place among those that torchrun (or `supervise`) started; alone where none did."""
    size = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    if size == 1:
        yield Ranks()
        return
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    if device.type == "cuda":
        torch.cuda.set_device(device.index if device.index is not None else local)
    # its functions keep, as a default, the group there was when they were imported; an optimiser imports them
    importlib.import_module("torch.distributed.nn")
    # both: gradients go where they lie, and small agreements never wait for a GPU
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    try:
        yield Ranks(rank, size, local)
    finally:
        leave()


def leave() -> None:
    """End the process group, and the threads of gloo with it."""
    # torch 2.6 waits for those threads without letting go of the interpreter, which a thread that drops its last tensor
    # waits for, so that now and then both wait for ever: asleep, this one lets them have it
    time.sleep(PAUSE)
    # the threads end with the last reference to the group, and one that lets go of a tensor while the interpreter
    # shuts down aborts the process: so none may be left, in cycles neither
    dist.destroy_process_group()
    gc.collect()


def sharing(parameters: Iterable[nn.Parameter], ranks: Ranks) -> Callable[[Tensor], Tensor]:
    """loss -> the mean loss of all ranks, the gradients having become the mean of all ranks: one message for both."""
    parameters = [parameter for parameter in parameters if parameter.requires_grad]

    def share(loss: Tensor) -> Tensor:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([part.reshape(-1) for part in (*gradients, loss.detach().to(gradients[0].dtype))])
        dist.all_reduce(flat, dist.ReduceOp.SUM, ranks.group)
        flat /= ranks.size
        start = 0
        for gradient in gradients:
            gradient.copy_(flat[start : start + gradient.numel()].view(gradient.shape))
            start += gradient.numel()
        return flat[-1]

    return share


class OfShard(nn.Module):
    """A loss that is a mean over its rows, as a shard's part of the mean over the whole batch.

    Averaged over `size` ranks, counted / batch x size x mean over the shard is the mean over the batch.

    Args:
        loss: logits, target -> mean over the rows.
        ranks: the ranks.
        batch_size: of the whole batch.
    """

    def __init__(self, loss: nn.Module, ranks: Ranks, batch_size: int) -> None:
        super().__init__()
        self.loss, self.factor = loss, ranks.counted(batch_size) * ranks.size / batch_size

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        value: Tensor = self.loss(logits, target) * self.factor
        return value


class Uncounted(nn.Module):
    """The criterion of a rank for which nothing is left: its example is padding, ignored by its label."""

    def __init__(self, criterion: nn.Module) -> None:
        super().__init__()
        self.criterion = criterion

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        value: Tensor = self.criterion(logits, torch.full_like(target, -100))
        return value
