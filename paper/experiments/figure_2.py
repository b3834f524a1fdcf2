"""Figure 2: mean p of clean and noisy labels, test accuracy, and the best mode at each rate; CIFAR-10, ResNet-56.

python -m paper run paper/experiments/figure_2.py --jobs 4 --figure figure_2.svg

The runs are those of ablation.py that the paper prints: in the same directory they are not repeated.
"""

from __future__ import annotations

from paper import Experiment
from paper.experiments.ablation import CELLS, COST, COST_ON, DIFFERS, METRICS

RATE = 0.4  # of (a) and (b); (c) needs only DM at the other rates
PLAIN = ("CCE", "DM(1, 0)")

EXPERIMENT = Experiment(
    name="figure_2",
    title="Figure 2: learning dynamics and the best emphasis mode, CIFAR-10, ResNet-56",
    protocol="ours",
    cells=tuple(cell for cell in CELLS if cell.reported and (cell.column == f"r = {RATE}" or cell.row not in PLAIN)),
    metrics=METRICS,
    differs="The paper does not say at which rate (a) and (b) are; here it is 40 %. " + DIFFERS,
    cost=COST,
    cost_on=COST_ON,
    figure="2",
    figure_rate=RATE,
)
