"""What taper does: six tapers after DN and one inside it, for DM(0.5, 8) and DM(1, 16), float32 or rounded logits.

reweigh table experiments/taper.py --jobs 4
"""

from __future__ import annotations

from dataclasses import replace

from reweigh.experiment import Cell, Experiment
from reweigh.experiment.protocols import ours
from reweigh.spec import Run
from reweigh.spec.run import Precision

TAPERS = (0.0, 5e-9, 5e-7, 1e-4, 1e-2, 1.0)
WEIGHTINGS = ("DM(0.5, 8)", "DM(1, 16)")
PRECISIONS: tuple[Precision, ...] = ("bf16", "bf16-logits")  # the net's body is in bfloat16 either way
INSIDE = "5e-07 inside DN"


def run(weighting: str, row: str) -> Run:
    """The run of a taper."""
    if row == INSIDE:
        return replace(ours(0.4, weighting=f"Tapered({weighting}, 5e-7)"), normalise="batch", taper=0.0)
    return replace(ours(0.4, weighting=weighting), normalise="batch", taper=float(row))


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
    metrics=("final", "best", "corrupted", "intact"),
    seeds=(0, 1, 2),
    differs="Not in the paper, which has no taper in its text and 5e-7 after DN in its program.",
    cost=52,
    cost_on="an H200, training alone, four at a time (benchmarks/results/harness.json)",
)
