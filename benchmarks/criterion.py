"""Time the criterion on a GPU, forward and backward, relative to a copy of the logits and to other cross entropies.

    python benchmarks/criterion.py --out benchmarks/results/criterion-h200.csv        (a CUDA device; about two minutes)
    python benchmarks/criterion.py --figure benchmarks/results/criterion-h200.csv     (draws a PNG next to it)

Accepted limits on one H200, medians in a CUDA graph: one-pass weightings within 1.25 x a copy at 8192 x 32000 and
8192 x 128256 in bf16 and 8192 x 32000 in fp32, batch-normalised DM within 1.6 x; at 256 x 10 and 256 x 100 not slower
than eager cross entropy in a graph. In eager mode at small shapes the host decides: 2.5 x cross entropy is accepted.

Logits are random and not a leaf. A time is the median of eleven readings (31 for small batches), each of many
iterations in sequence, with the readings of all methods alternating. Liger's kernel is timed if it is installed.
"""

from __future__ import annotations

import argparse
import csv
import gc
import statistics
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from criterion_linear import linear_rows
from provenance import provenance
from torch import Tensor
from torch.nn.functional import cross_entropy

from reweigh.criterion import Criterion
from reweigh.weightings import DM

SHAPES = [
    (256, 10, torch.float32),
    (256, 100, torch.float32),
    (128, 1000, torch.float32),
    (1024, 1000, torch.bfloat16),
    (8192, 1000, torch.float32),
    (1024, 21841, torch.float32),
    (8192, 32000, torch.bfloat16),
    (8192, 32000, torch.float32),
    (8192, 50304, torch.bfloat16),
    (8192, 128256, torch.bfloat16),
    (4096, 151936, torch.bfloat16),
    (8192, 256000, torch.bfloat16),
]
CAPTURED = 10  # steps in a graph
SMALL, LARGE = 2**19, 2**28  # bytes of logits
Loss = Callable[[Tensor, Tensor], Tensor]
Step = Callable[[], object]


class Effort:
    """Number of readings, their length, and their number for small batches, whose times vary with the host."""

    readings, milliseconds, of_small = 11, 10.0, 31


class Row(NamedTuple):
    """A line of the CSV: milliseconds, and peak gigabytes beyond the inputs where measured."""

    n: int
    classes: int
    dtype: str
    method: str
    mode: str
    ms: float
    extra_gb: float | None = None


def main() -> None:
    """Measure, print and write the CSV, or draw one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the CSV file to write")
    parser.add_argument("--figure", type=Path, help="a CSV file to draw")
    parser.add_argument("--commit", help="the commit that is measured, if this is not a git checkout")
    parser.add_argument("--classes", type=int, nargs="*", help="measure only shapes with these numbers of classes")
    parser.add_argument("--without", nargs="*", default=[], help="names of methods to leave out")
    parser.add_argument("--rehearse", action="store_true", help="compile everything, with minimal timing")
    options = parser.parse_args()
    if options.rehearse:
        Effort.readings, Effort.milliseconds, Effort.of_small = 1, 0.0, 1
    if options.out is not None:
        shapes = [shape for shape in SHAPES if options.classes is None or shape[1] in options.classes]
        rows = chain(criterion_rows(shapes, options.without), (Row(*row) for row in linear_rows(seconds)))
        report(write(options.out, options.commit, rows))
    if options.figure is not None:
        from criterion_figure import draw

        draw(options.figure)


def write(out: Path, commit: str | None, rows: Iterable[Row]) -> list[Row]:
    """Write the CSV with its provenance row by row, so that an interrupted run keeps its rows."""
    done = []
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", newline="") as file:
        for name, value in provenance(commit).items():
            file.write(f"# {name}: {value}\n")
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        for row in rows:
            print(*row, flush=True)
            writer.writerow(row)
            file.flush()
            done.append(row)
    return done


def losses() -> dict[str, Loss]:
    """Return the losses by name; each takes logits and target. Those that overwrite the logits come last."""
    named: dict[str, Loss] = {
        "cross entropy": cross_entropy,
        "cross entropy, compiled": torch.compile(cross_entropy, dynamic=False),
        "nothing": EmptyFunction.apply,
        "one pass": Criterion(DM(0.5, 8), normalise=None),
        "two passes": Criterion(DM(0.5, 8)),
        "any weighting": Criterion(lambda p: p**0.5 * (1 - p)),  # a custom function
    }
    if find_spec("liger_kernel") is not None:
        liger = import_module("liger_kernel.ops.cross_entropy").LigerCrossEntropyFunction
        named["Liger, in place"] = lambda z, y: liger.apply(z, y, None)[0]
    return named


class EmptyFunction(torch.autograd.Function):
    """An autograd function in Python without kernels: the overhead of torch, which the criterion has too."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        ctx.save_for_backward(logits)
        return torch.empty((), device=logits.device)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return torch.empty_like(ctx.saved_tensors[0]), None


def criterion_rows(shapes: list[tuple[int, int, torch.dtype]], without: list[str]) -> Iterator[Row]:
    """Time the copy and every loss, eagerly and in a CUDA graph."""
    for n, classes, dtype in shapes:
        torch.compiler.reset()
        rng = torch.Generator("cuda").manual_seed(0)
        logits = torch.randn(n, classes, generator=rng, device="cuda", dtype=dtype)
        target = torch.randint(classes, (n,), generator=rng, device="cuda")
        methods = {name: loss for name, loss in {"copy": None, **losses()}.items() if name not in without}
        for mode, group in product(("eager", "graph"), groups(list(methods), logits.nbytes < LARGE)):
            # Liger's waits for the device, which a graph cannot; an empty function leaves nothing to capture
            names = [name for name in group if mode == "eager" or not name.startswith(("Liger", "nothing"))]
            steps = [
                copy_step(logits) if (loss := methods[name]) is None else backward_step(loss, logits, target)
                for name in names
            ]
            if mode == "graph":
                steps = [capture(step) for step in steps]
            readings = Effort.of_small if logits.nbytes <= SMALL else Effort.readings
            for name, taken in zip(names, time_alternately(steps, readings), strict=True):
                ms = 1e3 * taken / (CAPTURED if mode == "graph" else 1)
                yield Row(n, classes, str(dtype).removeprefix("torch."), name, mode, round(ms, 5))
            del steps
            torch.cuda.empty_cache()
        del logits


def groups(names: list[str], small: bool) -> list[list[str]]:
    """Group the methods whose readings alternate, because the speed of the machine varies over seconds.

    A method is alone in its group if it overwrites the logits, or if graphs of several would need too much memory.
    """
    alone = [name for name in names if not small or "in place" in name]
    together = [name for name in names if name not in alone]
    return [together] * bool(together) + [[name] for name in alone]


def copy_step(logits: Tensor) -> Step:
    copy = torch.empty_like(logits)
    return lambda: copy.copy_(logits)


def backward_step(loss: Loss, logits: Tensor, target: Tensor) -> Step:
    """Return a forward and backward pass through logits that are not a leaf.

    Their leaf is new for each method: autograd stores the stream of its first use, and a graph cannot wait for another.
    """
    leaf = logits.detach().requires_grad_()

    def step() -> None:
        torch.autograd.grad(loss(leaf.view_as(leaf), target), leaf)

    return step


def seconds(step: Step) -> float:
    return time_alternately([step], Effort.readings)[0]


def time_alternately(steps: list[Step], readings: int) -> list[float]:
    """Return the median reading of each step in seconds; a reading runs many steps in sequence, as in training.

    Garbage collection is off, as in `timeit`: it would search what a compiler left in memory, at the expense of
    functions written in Python.
    """
    gc.collect()
    gc.disable()
    counts = []
    for step in steps:
        for _ in range(3):
            step()
        once = reading(step, 1)
        counts.append(max(2, min(200, int(Effort.milliseconds / 1e3 / once))) if Effort.milliseconds else 1)
    rounds = [[reading(*pair) for pair in zip(steps, counts, strict=True)] for _ in range(readings)]
    return [statistics.median(taken) for taken in zip(*rounds, strict=True)]


def reading(step: Step, count: int) -> float:
    begin, end = torch.Event("cuda", enable_timing=True), torch.Event("cuda", enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(count):
        step()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / count


def capture(step: Step) -> Step:
    """Return a replay of several steps in a CUDA graph."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        for _ in range(CAPTURED):
            step()

    def replay() -> Step:
        graph.replay()
        return step  # keeps the tensors that the graph uses

    return replay


def report(rows: list[Row]) -> None:
    """Print times relative to the copy, one line per shape and mode."""
    table: dict[tuple[object, ...], dict[str, float]] = {}
    for row in rows:
        table.setdefault((row.n, row.classes, row.dtype, row.mode), {})[row.method] = row.ms
    for key, times in table.items():
        base = times.get("copy")
        cells = [f"{name} {ms:.4f} ms" + (f" ({ms / base:.2f})" if base else "") for name, ms in times.items()]
        print(*key, "|", " | ".join(cells))


if __name__ == "__main__":
    main()
