"""Table 8 (appendix): L2, dropout and DM on Vehicles-10, 5,000 images of CIFAR-100's vehicles, ResNet-44.

python -m paper run paper/experiments/vehicles10.py
"""

from __future__ import annotations

from dataclasses import replace

from paper import Experiment, Row, grid
from paper.experiments.regularisers import ROWS, regularised
from paper.protocols import paper
from reweigh.lab.spec import Run

PRINTED = {  # r = 0, r = 0.4
    "Baseline": "75.4 42.3",
    "L2": "76.4 44.8",
    "Dropout": "77.9 41.6",
    "Dropout+L2": "78.7 47.4",
    "DM": "83.8 45.8",
    "DM+L2": "84.4 55.7",
    "DM+Dropout": "84.5 48.8",
    "DM+L2+Dropout": "84.7 58.1",
}


def run(row: str, column: str) -> Run:
    """Return the run of a cell."""
    rate = float(column.removeprefix("r = "))
    return regularised(
        row, lambda weighting: replace(paper("cifar100", rate=rate, weighting=weighting), data="vehicles10")
    )


def line(row: str) -> Row:
    """Return a row."""
    return Row(row, lambda column: run(row, column), PRINTED[row])


EXPERIMENT = Experiment(
    name="vehicles10",
    title="Table 8: regularisers, Vehicles-10, ResNet-44",
    protocol="text",
    cells=grid(("r = 0", "r = 0.4"), map(line, ROWS)),
    differs="DM's parameters are unpublished: DM(0.5, 8), as in the table of regularisers. The length of the training "
    "is not given: 30,000 iterations, as on CIFAR-100.",
)
