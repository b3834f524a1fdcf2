"""Densities normalised over the batch or within every class: CIFAR-10 with 40 % symmetric noise.

python -m paper paper/experiments/within_classes.py --jobs 4

ResNet-56 as in taper.py (5,000 iterations), and a net that trains on a CPU in some minutes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from paper import Cell, Experiment
from paper.experiments import taper
from reweigh.lab.spec import Run

NARROWER = ("DM(0.5, 8)", "DM(1, 16)", "DM(2, 20)")
SMALL = "CifarNet, 1,000 iterations"
RATES = {"ResNet-56, lr 0.1": 0.1, "ResNet-56, lr 0.01": 0.01}


def run(column: str, weighting: str, normalise: Literal["auto", "batch", "class"]) -> Run:
    """The run of a weighting in a column."""
    if column == SMALL:
        small = Run(data="cifar10", net="cifarnet", noise="symmetric", rate=0.4, weighting=weighting)
        return replace(small, normalise=normalise, iterations=1000, batch_size=128, evaluate_every=1000, lr=0.01)
    usual = replace(taper.run(weighting, "5e-07"), lr=RATES[column], normalise=normalise)
    return usual if normalise != "auto" else replace(usual, taper="auto")


EXPERIMENT = Experiment(
    name="within_classes",
    title="Normalised over the batch or within every class: CIFAR-10, 40 % symmetric noise",
    protocol="ours",
    cells=tuple(
        cell
        for column in (SMALL, *RATES)
        for cell in (
            Cell("CCE", column, run(column, "CCE", "auto")),
            *(Cell(weighting, column, run(column, weighting, "batch")) for weighting in NARROWER),
            *(Cell(f"{weighting}, within classes", column, run(column, weighting, "class")) for weighting in NARROWER),
        )
    ),
    metrics=("final", "best", "corrupted", "intact", "collapsed_classes"),
    seeds=(0, 1, 2),
    differs="Not in the paper, which normalises over the batch. Short runs; CifarNet by a cosine schedule.",
    cost=430,
    cost_on="two CPU cores (CifarNet with its evaluation)",
)
