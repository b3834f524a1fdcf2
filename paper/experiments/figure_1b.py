"""Figure 1b: emphasis densities of CCE, MAE, MSE, GCE and DM. Nothing is trained.

python -m paper run paper/experiments/figure_1b.py --figure figure_1b.svg
"""

from __future__ import annotations

from paper import Experiment

EXPERIMENT = Experiment(
    name="figure_1b",
    title="Figure 1b: emphasis density functions",
    protocol="text",
    cells=(),
    differs="The parameters of the paper's curves are not printed: GCE has q = 0.7, DM three settings of its ablation.",
    figure="1b",
)
