"""Appendix figures on clean CIFAR-10: ResNet-20 and ResNet-56, lam = 0, several variances.

python -m paper run paper/experiments/clean_resnets.py --jobs 4 --figure clean.svg
"""

from __future__ import annotations

from paper import Experiment, Row, grid
from paper.protocols import ours

WEIGHTINGS = ("CCE", "DM(1, 0)", "DM(0, 0.5)", "DM(0, 1)", "DM(0, 2)", "DM(0, 4)")
NETS = {"ResNet-20": "resnet20", "ResNet-56": "resnet56"}


def line(weighting: str) -> Row:
    """Return the row of a weighting."""
    return Row(weighting, lambda column: ours(0, weighting=weighting, net=NETS[column]))


EXPERIMENT = Experiment(
    name="clean_resnets",
    title="Learning dynamics on clean CIFAR-10, ResNet-20 and ResNet-56",
    protocol="ours",
    cells=grid(tuple(NETS), map(line, WEIGHTINGS)),
    metrics=("final", "best", "corrupted"),
    differs="The paper shows curves without numbers and does not print its betas; these are the ablation's.",
    figure="grid",
)
