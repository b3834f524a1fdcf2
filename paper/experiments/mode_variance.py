"""Appendix figures with one panel for each mode and one line for each variance; CIFAR-10, ResNet-56.

python -m paper run paper/experiments/mode_variance.py --only "r = 0.4" --figure grid.svg

The runs are those of ablation.py: in the same directory they are not repeated.
"""

from __future__ import annotations

from paper import Experiment
from paper.experiments.ablation import CELLS, COST, COST_ON, DIFFERS

EXPERIMENT = Experiment(
    name="mode_variance",
    title="Learning dynamics of every mode and variance, CIFAR-10, ResNet-56",
    protocol="ours",
    cells=tuple(cell for cell in CELLS if cell.row not in ("CCE", "DM(1, 0)")),
    metrics=("final", "best", "corrupted"),
    differs=DIFFERS,
    cost=COST,
    cost_on=COST_ON,
    figure="grid",
)
