"""What does the criterion cost on a CPU, beside cross entropy and beside a training step of ResNet-20?

    python benchmarks/criterion_cpu.py --out benchmarks/results/criterion-cpu.csv                     (about a minute)
    python benchmarks/criterion_cpu.py --threads 1 --clock cpu --out ...                              (a busy machine)

Targets, with two threads: at most 1.3 times torch's cross entropy, forward and backward, for 1000 classes and more; and
under 2 % of a training step of ResNet-20 (batch 128) with 10 and 100 classes. Ways are timed in turn, round after
round, and a ratio is the median of the rounds' ratios, so that other work on the machine meets all alike. Where there
is much of it, threads wait for each other's turn and the wall clock shows that wait alone: take one thread's CPU time.
The order is drawn anew in every round: what comes after much other code finds the caches full of that.

Beside them stand DM as one would write it down, in log-softmax and p, without care for digits where p is near 1, for
ignored labels or a second derivative; and, where there is a C++ compiler, cross entropy under torch.compile. Ignored
labels, weights of classes and a sum stand beside torch's cross entropy with the same. With REWEIGH_KERNELS=off the
criterion is in plain torch, as without a compiler (criterion-cpu-torch.csv).
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from shutil import which
from typing import Any, NamedTuple

import torch
from provenance import provenance
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from reweigh.criterion import Criterion
from reweigh.lab.nets.registry import build
from reweigh.weightings import CCE, DM

ROUNDS, BATCH = 31, 128
ROOM = 7_000_000  # numbers that are given back at once: malloc then keeps what smaller tensors leave, as in training
MANY = 2_000_000  # logits; of fewer there are more rounds, because a moment's disturbance is longer than such a one
SHAPES = [(n, 1000) for n in (8, 32, 128, 256, 1024, 4096)] + [(512, 10000), (256, 32000), (64, 128256)]
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
Loss = Callable[[Tensor, Tensor], Tensor]
Clock = Callable[[], float]
LOSSES: dict[str, Loss] = {"DM(0.5, 8), batch": Criterion(DM(0.5, 8)), "CCE": Criterion(CCE())}
ANY: dict[str, Loss] = {"a function of p, batch": Criterion(lambda p: p * (1 - p), normalise="batch")}


def written_down(logits: Tensor, target: Tensor) -> Tensor:
    """DM(0.5, 8) over the batch, with its authors' 2 (1 - p) + 1e-6; the value is not cross entropy."""
    log_p = logits.log_softmax(1).gather(1, target.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        p = log_p.exp()
        w = (8 * p**0.5 * (1 - p)).exp()
        size = w / w.sum() / (2 * (1 - p) + 1e-6)
    return -(size * log_p).sum()


class Row(NamedTuple):
    """Milliseconds of the criterion and of what it stands beside, and their ratio: medians of all rounds."""

    beside: str
    n: int
    classes: int
    criterion: str
    ms: float
    beside_ms: float
    ratio: float


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the CSV file to write")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.empty(ROOM)
    clock = CLOCKS[options.clock]
    rows = [*beside_cross_entropy(clock), *where_labels_do_not_count_once(clock), *beside_a_step(clock)]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        for name, value in (provenance() | {"clock": options.clock}).items():
            file.write(f"# {name}: {value}\n")
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        writer.writerows(rows)


def beside_cross_entropy(clock: Clock) -> Iterator[Row]:
    """Forward and backward on random logits."""
    losses = LOSSES | ANY | {"DM, written down": written_down}
    if which(os.environ.get("CXX", "g++")):
        losses["cross entropy, compiled"] = torch.compile(cross_entropy, dynamic=False)
    for n, classes in SHAPES:
        torch.compiler.reset()  # it gives up on a function that has met many shapes
        logits, target = torch.randn(n, classes) * 3, torch.arange(n) % classes
        ways = [through(loss, logits, target) for loss in (cross_entropy, *losses.values())]
        theirs, *ours = in_turn(ways, clock, rounds(logits))
        for name, taken in zip(losses, ours, strict=True):
            yield row("cross entropy", n, classes, name, taken, theirs)


def where_labels_do_not_count_once(clock: Clock) -> Iterator[Row]:
    """Beside torch's cross entropy with the same labels ignored, the same weights of classes, or the same sum."""
    for n, classes in ((128, 1000), (1024, 1000)):
        logits, target = torch.randn(n, classes) * 3, torch.arange(n) % classes
        weight = torch.rand(classes) + 0.5
        cases: list[tuple[str, dict[str, Any], Tensor]] = [
            ("a quarter ignored", {}, target.where(target % 4 > 0, -100)),
            ("class weights", {"weight": weight}, target),
            ("sum", {"reduction": "sum"}, target),
        ]
        for name, settings, labels in cases:
            losses: dict[str, Loss] = {"CCE": Criterion(CCE(), **settings)}
            if name != "sum":  # is no share of a batch
                losses["DM(0.5, 8), batch"] = Criterion(DM(0.5, 8), **settings)
            both: tuple[Loss, ...] = (partial(cross_entropy, **settings), *losses.values())
            theirs, *ours = in_turn([through(loss, logits, labels) for loss in both], clock, rounds(logits))
            for loss, taken in zip(losses, ours, strict=True):
                yield row(f"cross entropy, {name}", n, classes, loss, taken, theirs)


def beside_a_step(clock: Clock) -> Iterator[Row]:
    """The criterion on a batch's logits beside a whole training step with cross entropy."""
    for classes in (10, 100):
        images, target = torch.randn(BATCH, 3, 32, 32), torch.arange(BATCH) % classes
        net = build("resnet20", classes, generator=torch.Generator().manual_seed(0))
        logits = net(images).detach()
        ways = [training(net, images, target), *(through(loss, logits, target) for loss in LOSSES.values())]
        whole, *ours = in_turn(ways, clock, ROUNDS // 3)
        for name, taken in zip(LOSSES, ours, strict=True):
            yield row("step of ResNet-20", BATCH, classes, name, taken, whole)


def training(net: nn.Module, images: Tensor, target: Tensor) -> Callable[[], None]:
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def step() -> None:
        optimiser.zero_grad()
        cross_entropy(net(images), target).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def through(loss: Loss, logits: Tensor, target: Tensor) -> Callable[[], None]:
    leaf = logits.clone().requires_grad_()

    def step() -> None:
        leaf.grad = None
        loss(leaf, target).backward()  # type: ignore[no-untyped-call]

    return step


def rounds(logits: Tensor) -> int:
    return ROUNDS * max(1, MANY // logits.numel())


def in_turn(ways: list[Callable[[], None]], clock: Clock, rounds: int) -> list[list[float]]:
    """Seconds of each way in each round; the first two rounds are for warmth."""
    taken: list[list[float]] = [[] for _ in ways]
    order = Random(0)
    for _ in range(rounds + 2):
        for i in order.sample(range(len(ways)), len(ways)):
            start = clock()
            ways[i]()
            taken[i].append(clock() - start)
    return [seconds[2:] for seconds in taken]


def row(beside: str, n: int, classes: int, name: str, ours: list[float], theirs: list[float]) -> Row:
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    ms, beside_ms = (1e3 * statistics.median(x) for x in (ours, theirs))
    found = Row(beside, n, classes, name, round(ms, 3), round(beside_ms, 3), round(ratio, 4))
    print(*found, flush=True)
    return found


if __name__ == "__main__":
    main()
