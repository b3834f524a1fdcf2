"""How fast is the criterion on a GPU, forward and backward, beside a copy of the logits and other cross entropies?

    python benchmarks/criterion.py --out benchmarks/results/criterion-h200.csv        (a CUDA device; about two minutes)
    python benchmarks/criterion.py --figure benchmarks/results/criterion-h200.csv     (draws the PNG beside it)

Targets on one H200: a single pass at most 1.25 times the copy for rows of up to 128 KB and 1.7 times above, two passes
(batch normalisation) 1.9 times; never slower than compiled cross entropy or Liger's; 256 x 10 and 256 x 100 not slower
than eager cross entropy, and under 8 microseconds in a CUDA graph. Random logits, which are no leaf; the median of
eleven readings (31 of small batches), each of many iterations back to back, all methods in turn. Liger's kernel is
timed where it can be imported.
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
    """How many readings, how long each, and how many of small batches: these depend on the host, which has moods."""

    readings, milliseconds, of_small = 11, 10.0, 31


class Row(NamedTuple):
    """One line of the CSV: milliseconds, and gigabytes beyond the inputs where they were watched."""

    n: int
    classes: int
    dtype: str
    method: str
    mode: str
    ms: float
    extra_gb: float | None = None


def main() -> None:
    """Measure, print, write; or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the CSV file to write")
    parser.add_argument("--figure", type=Path, help="a CSV file to draw")
    parser.add_argument("--commit", help="the commit that is measured, where git does not know it")
    parser.add_argument("--classes", type=int, nargs="*", help="only the shapes with so many classes")
    parser.add_argument("--without", nargs="*", default=[], help="names of methods to leave out")
    parser.add_argument("--rehearse", action="store_true", help="compile everything, and time next to nothing")
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
    """The CSV with its provenance, row by row as they come: a run cut short leaves what it has."""
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
    """By name; each takes logits and target. Last those that overwrite the logits."""
    named: dict[str, Loss] = {
        "cross entropy": cross_entropy,
        "cross entropy, compiled": torch.compile(cross_entropy, dynamic=False),
        "nothing": Nothing.apply,
        "one pass": Criterion(DM(0.5, 8), normalise=None),
        "two passes": Criterion(DM(0.5, 8)),
        "any weighting": Criterion(lambda p: p**0.5 * (1 - p)),  # a function of the user's own
    }
    if find_spec("liger_kernel") is not None:
        liger = import_module("liger_kernel.ops.cross_entropy").LigerCrossEntropyFunction
        named["Liger, in place"] = lambda z, y: liger.apply(z, y, None)[0]
    return named


class Nothing(torch.autograd.Function):
    """What torch itself takes for a function written in Python, which the criterion is: no kernel at all."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        ctx.save_for_backward(logits)
        return torch.empty((), device=logits.device)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return torch.empty_like(ctx.saved_tensors[0]), None


def criterion_rows(shapes: list[tuple[int, int, torch.dtype]], without: list[str]) -> Iterator[Row]:
    """The copy and every loss, eager and in a CUDA graph."""
    for n, classes, dtype in shapes:
        torch.compiler.reset()
        rng = torch.Generator("cuda").manual_seed(0)
        logits = torch.randn(n, classes, generator=rng, device="cuda", dtype=dtype)
        target = torch.randint(classes, (n,), generator=rng, device="cuda")
        methods = {name: loss for name, loss in {"copy": None, **losses()}.items() if name not in without}
        for mode, group in product(("eager", "graph"), groups(list(methods), logits.nbytes < LARGE)):
            # Liger's waits for the device, which a graph cannot; and nothing leaves no graph
            names = [name for name in group if mode == "eager" or not name.startswith(("Liger", "nothing"))]
            steps = [
                copy_of(logits) if (loss := methods[name]) is None else through(loss, logits, target) for name in names
            ]
            if mode == "graph":
                steps = [captured(step) for step in steps]
            readings = Effort.of_small if logits.nbytes <= SMALL else Effort.readings
            for name, taken in zip(names, in_turn(steps, readings), strict=True):
                ms = 1e3 * taken / (CAPTURED if mode == "graph" else 1)
                yield Row(n, classes, str(dtype).removeprefix("torch."), name, mode, round(ms, 5))
            del steps
            torch.cuda.empty_cache()
        del logits


def groups(names: list[str], small: bool) -> list[list[str]]:
    """What is timed in turn, because the machine may be slower a second later.

    Where graphs would keep too much memory, every method is a group; and always one that overwrites the logits.
    """
    alone = [name for name in names if not small or "in place" in name]
    together = [name for name in names if name not in alone]
    return [together] * bool(together) + [[name] for name in alone]


def copy_of(logits: Tensor) -> Step:
    room = torch.empty_like(logits)
    return lambda: room.copy_(logits)


def through(loss: Loss, logits: Tensor, target: Tensor) -> Step:
    """Forward and backward, through logits that are no leaf.

    The leaf behind them is new each time: autograd remembers on which stream one was first used, and a graph cannot
    wait for another stream.
    """
    leaf = logits.detach().requires_grad_()

    def step() -> None:
        torch.autograd.grad(loss(leaf.view_as(leaf), target), leaf)

    return step


def seconds(step: Step) -> float:
    return in_turn([step], Effort.readings)[0]


def in_turn(steps: list[Step], readings: int) -> list[float]:
    """The median over readings of each; a reading runs many steps back to back, as a training loop would.

    Without Python's collection of garbage, as in `timeit`: what a compiler has left in memory would be searched for it
    again and again, and functions written in Python would pay for that.
    """
    gc.collect()
    gc.disable()
    counts = []
    for step in steps:
        for _ in range(3):
            step()
        once = reading(step, 1)
        counts.append(max(2, min(200, int(Effort.milliseconds / 1e3 / once))) if Effort.milliseconds else 1)
    found = [[reading(*pair) for pair in zip(steps, counts, strict=True)] for _ in range(readings)]
    return [statistics.median(taken) for taken in zip(*found, strict=True)]


def reading(step: Step, count: int) -> float:
    begin, end = torch.Event("cuda", enable_timing=True), torch.Event("cuda", enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(count):
        step()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / count


def captured(step: Step) -> Step:
    """Several steps in a CUDA graph."""
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
        return step  # whose tensors the graph needs

    return replay


def report(rows: list[Row]) -> None:
    """Times relative to the copy, one line for each shape and mode."""
    table: dict[tuple[object, ...], dict[str, float]] = {}
    for row in rows:
        table.setdefault((row.n, row.classes, row.dtype, row.mode), {})[row.method] = row.ms
    for key, found in table.items():
        base = found.get("copy")
        cells = [f"{name} {ms:.4f} ms" + (f" ({ms / base:.2f})" if base else "") for name, ms in found.items()]
        print(*key, "|", " | ".join(cells))


if __name__ == "__main__":
    main()
