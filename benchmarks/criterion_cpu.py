"""Time the criterion on a CPU, relative to cross entropy and to a training step of ResNet-20.

    python benchmarks/criterion_cpu.py --out benchmarks/results/criterion-cpu.csv                     (about a minute)
    python benchmarks/criterion_cpu.py --threads 1 --clock cpu --out ...                              (a busy machine)

Targets, with two threads, forward and backward: at most 1.0 times `F.cross_entropy` from 1000 classes on, and at most 2
times at 256 x 10. The criterion is plain torch on a CPU.

All functions are timed in every round, in random order, because caches depend on the code that ran before; a ratio is
the median of the rounds' ratios, so that other work on the machine affects both sides. On a machine with much other
work, threads wait for each other and the wall clock measures that: use one thread and CPU time.

The functions that are compared: DM as a user would write it in log-softmax and p, without care for digits near p = 1,
ignored labels or second derivatives; cross entropy under torch.compile, if there is a compiler; and torch's cross
entropy with the same ignored labels, class weights or sum.
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
FREED = 7_000_000  # numbers allocated and freed at the start, after which malloc reuses smaller blocks, as in training
LARGE = 2_000_000  # logits; smaller inputs take more rounds, because a disturbance lasts longer than one call
SHAPES = [(256, 10)] + [(n, 1000) for n in (8, 32, 128, 256, 1024, 4096)] + [(512, 10000), (256, 32000), (64, 128256)]
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
Loss = Callable[[Tensor, Tensor], Tensor]
Clock = Callable[[], float]
LOSSES: dict[str, Loss] = {"DM(0.5, 8), batch": Criterion(DM(0.5, 8)), "CCE": Criterion(CCE())}
ANY: dict[str, Loss] = {"a function of p, batch": Criterion(lambda p: p * (1 - p), normalise="batch")}


def written_down(logits: Tensor, target: Tensor) -> Tensor:
    """Return a loss with the gradient of batch-normalised DM(0.5, 8), with its authors' 2 (1 - p) + 1e-6."""
    log_p = logits.log_softmax(1).gather(1, target.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        p = log_p.exp()
        w = (8 * p**0.5 * (1 - p)).exp()
        size = w / w.sum() / (2 * (1 - p) + 1e-6)
    return -(size * log_p).sum()


class Row(NamedTuple):
    """A line of the CSV: milliseconds of the criterion and of `beside`, and their ratio, as medians of all rounds."""

    beside: str
    n: int
    classes: int
    criterion: str
    ms: float
    beside_ms: float
    ratio: float


def main() -> None:
    """Measure, print and write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the CSV file to write")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.empty(FREED)
    clock = CLOCKS[options.clock]
    rows = [*against_cross_entropy(clock), *with_options(clock), *against_training_step(clock)]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        for name, value in (provenance() | {"clock": options.clock}).items():
            file.write(f"# {name}: {value}\n")
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        writer.writerows(rows)


def against_cross_entropy(clock: Clock) -> Iterator[Row]:
    """Time forward and backward passes on random logits."""
    losses = LOSSES | ANY | {"DM, written down": written_down}
    if which(os.environ.get("CXX", "g++")):
        losses["cross entropy, compiled"] = torch.compile(cross_entropy, dynamic=False)
    for n, classes in SHAPES:
        torch.compiler.reset()  # it stops compiling a function after a few shapes
        logits, target = torch.randn(n, classes) * 3, torch.arange(n) % classes
        steps = [backward_step(loss, logits, target) for loss in (cross_entropy, *losses.values())]
        theirs, *ours = time_alternately(steps, clock, rounds(logits))
        for name, taken in zip(losses, ours, strict=True):
            yield row("cross entropy", n, classes, name, taken, theirs)


def with_options(clock: Clock) -> Iterator[Row]:
    """Compare with torch's cross entropy with the same ignored labels, class weights or sum."""
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
            if name != "sum":  # which batch normalisation does not support
                losses["DM(0.5, 8), batch"] = Criterion(DM(0.5, 8), **settings)
            both: tuple[Loss, ...] = (partial(cross_entropy, **settings), *losses.values())
            steps = [backward_step(loss, logits, labels) for loss in both]
            theirs, *ours = time_alternately(steps, clock, rounds(logits))
            for loss, taken in zip(losses, ours, strict=True):
                yield row(f"cross entropy, {name}", n, classes, loss, taken, theirs)


def against_training_step(clock: Clock) -> Iterator[Row]:
    """Compare the criterion on the logits of a batch with a training step of ResNet-20 with cross entropy."""
    for classes in (10, 100):
        images, target = torch.randn(BATCH, 3, 32, 32), torch.arange(BATCH) % classes
        net = build("resnet20", classes, generator=torch.Generator().manual_seed(0))
        logits = net(images).detach()
        criteria = [backward_step(loss, logits, target) for loss in LOSSES.values()]
        whole_step, *ours = time_alternately([training_step(net, images, target), *criteria], clock, ROUNDS // 3)
        for name, taken in zip(LOSSES, ours, strict=True):
            yield row("step of ResNet-20", BATCH, classes, name, taken, whole_step)


def training_step(net: nn.Module, images: Tensor, target: Tensor) -> Callable[[], None]:
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def step() -> None:
        optimiser.zero_grad()
        cross_entropy(net(images), target).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def backward_step(loss: Loss, logits: Tensor, target: Tensor) -> Callable[[], None]:
    leaf = logits.clone().requires_grad_()

    def step() -> None:
        leaf.grad = None
        loss(leaf, target).backward()  # type: ignore[no-untyped-call]

    return step


def rounds(logits: Tensor) -> int:
    return ROUNDS * max(1, LARGE // logits.numel())


def time_alternately(steps: list[Callable[[], None]], clock: Clock, rounds: int) -> list[list[float]]:
    """Return the seconds of each function in each round, without the first two rounds."""
    taken: list[list[float]] = [[] for _ in steps]
    order = Random(0)
    for _ in range(rounds + 2):
        for i in order.sample(range(len(steps)), len(steps)):
            start = clock()
            steps[i]()
            taken[i].append(clock() - start)
    return [seconds[2:] for seconds in taken]


def row(beside: str, n: int, classes: int, name: str, ours: list[float], theirs: list[float]) -> Row:
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    ms, beside_ms = (1e3 * statistics.median(x) for x in (ours, theirs))
    line = Row(beside, n, classes, name, round(ms, 3), round(beside_ms, 3), round(ratio, 4))
    print(*line, flush=True)
    return line


if __name__ == "__main__":
    main()
