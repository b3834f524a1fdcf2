"""What taper does: six tapers after DN and one inside it, for DM(0.5, 8) and DM(1, 16), float32 or rounded logits.

python -m paper paper/experiments/taper.py --jobs 4

Runs of a quarter of the usual length, with the learning rate falling at the same shares of it: 84 whole ones would
take an H200 more than an hour.
"""

from __future__ import annotations

from dataclasses import replace

from paper import Cell, Experiment
from paper.protocols import ours
from reweigh.lab.spec import Run
from reweigh.lab.spec.run import Precision

TAPERS = (0.0, 5e-9, 5e-7, 1e-4, 1e-2, 1.0)
WEIGHTINGS = ("DM(0.5, 8)", "DM(1, 16)")
PRECISIONS: tuple[Precision, ...] = ("bf16", "bf16-logits")  # the net's body is in bfloat16 either way
INSIDE = "5e-07 inside DN"
ITERATIONS = 5_000


def run(weighting: str, row: str) -> Run:
    """The run of a taper."""
    taper = 0.0 if row == INSIDE else float(row)
    weighting = f"Tapered({weighting}, 5e-7)" if row == INSIDE else weighting
    usual = ours(0.4, weighting=weighting, iterations=ITERATIONS)
    return replace(usual, normalise="batch", taper=taper, evaluate_every=ITERATIONS // 5)


EXPERIMENT = Experiment(
    name="taper",
    title="Taper: CIFAR-10, 40 % symmetric noise, ResNet-56",
    protocol="ours",
    cells=tuple(
        Cell(row, f"{weighting}, {precision}", replace(run(weighting, row), precision=precision))
        for row in (*(f"{taper:g}" for taper in TAPERS), INSIDE)
        for weighting in WEIGHTINGS
        for precision in PRECISIONS
    ),
    metrics=("final", "best", "corrupted", "intact", "collapsed_classes"),
    seeds=(0, 1, 2),
    differs=(
        "Not in the paper, which has no taper in its text and 5e-7 after DN in its program. Runs of 5,000 iterations, "
        "a quarter of the other experiments'."
    ),
    cost=13,
    cost_on="an H200, training alone, four at a time (benchmarks/results/harness.json)",
)
