"""Comparison of methods: CIFAR-10, 40 % symmetric noise, ResNet-56, 20,000 iterations (102 epochs) each.

python -m paper run paper/experiments/cifar10_rivals.py --jobs 4

Numbers of epochs are scaled from the training in each publication to this one.
"""

from __future__ import annotations

from dataclasses import replace

from paper import Cell, Experiment, Procedure
from paper.protocols import ours
from reweigh.lab.spec import Run

COLUMN = "r = 0.4"
CCE = ours(weighting="CCE")
RUNS: dict[str, Run] = {
    "CCE": CCE,
    "GCE(0.7)": ours(weighting="GCE(0.7)"),
    "DM(0.5, 8)": ours(weighting="DM(0.5, 8)"),
    "DM(0.5, 12)": ours(weighting="DM(0.5, 12)"),
    "Label smoothing": ours(loss="LabelSmoothing(0.1)"),
    "Boot-soft": ours(loss="BootstrapSoft(0.95)"),
    "Boot-hard": ours(loss="BootstrapHard(0.8)"),
    "Forward, true T": ours(loss="Forward(symmetric(0.4))"),
    "SL": ours(weighting="SL(0.1, 9.21)"),
    "Focal": ours(weighting="Focal(2)"),
    "Self-paced": ours(method="SelfPaced(0.7)"),
    "D2L": ours(method="D2L(34)"),
    "MentorNet PD": ours(method="MentorNetPD(0.75)"),
    "Co-teaching": ours(method="CoTeaching(0.4)"),
    "M-DYR-H": ours(method="MDYRH(36)"),
    "ELR": ours(method="ELR(3, 0.7)"),
}
NOTES = {"Forward, true T": "uses the true noise matrix", "Co-teaching": "uses the true noise rate; two nets"}
JOINT = Procedure("joint_optimisation", (("begin", 36), ("slots", 10)))

EXPERIMENT = Experiment(
    name="cifar10_rivals",
    title="Comparison of methods: CIFAR-10, 40 % symmetric noise, ResNet-56",
    protocol="ours",
    cells=(
        *(Cell(row, COLUMN, run, note=NOTES.get(row, "")) for row, run in RUNS.items()),
        Cell("Joint Optimisation", COLUMN, replace(CCE), procedure=JOINT, note="two trainings"),
    ),
    metrics=("final", "best", "corrupted", "intact"),
    differs="Not in the paper, which quotes the numbers of other methods from their publications. Settings are the "
    "published ones, none was tuned here, and all rows share a learning rate.",
)
