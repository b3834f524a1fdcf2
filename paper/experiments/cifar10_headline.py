"""CIFAR-10, 40 % symmetric noise, ResNet-56: every weighting at a shared learning rate, and at its own best.

python -m paper run paper/experiments/cifar10_headline.py --jobs 4 --seeds 0,1,2

A shared learning rate confounds the shape of a weighting with the size of its steps: batch DN alone changes that size
by an order of magnitude. The second column chooses among four rates by short runs on an 80/20 split.
"""

from __future__ import annotations

from dataclasses import replace

from paper import Cell, Experiment, Reported
from paper.experiments.ablation import COST, COST_ON, METRICS, PRINTED
from paper.protocols import BETAS, ours, search_beta, search_rate
from reweigh.lab.spec import Run

RATES = (0.01, 0.03, 0.1, 0.3)
LOSSES = {"CCE": "CCE", "GCE": "GCE(0.7)", "MAE": "MAE", "MSE": "MSE"}
DENSITIES = ("DM(1, 0)", "DM(0, 1)", "DM(0.5, 12)", "DM(1, 16)", "DM(2, 20)")  # the paper's betas at 40 %
BEST = {0.2: "DM(0.5, 12)", 0.6: "DM(2, 12)", 0.8: "DM(2, 12)"}  # best final accuracy in the paper


def runs() -> dict[str, Run]:
    """Return the run of every row, at lr 0.1."""
    plain = {name: ours(0.4, weighting=weighting) for name, weighting in LOSSES.items()}
    normalised = {f"{name}-DN": replace(run, normalise="batch") for name, run in plain.items()}
    return plain | normalised | {weighting: ours(0.4, weighting=weighting) for weighting in DENSITIES}


def printed(rate: float, row: str) -> tuple[Reported, ...]:
    """Return the numbers that the paper's ablation prints for a row."""
    found = PRINTED.get(rate, {}).get(row, ())
    return tuple(Reported(metric, value) for metric, value in zip(METRICS, found, strict=False))


def at_rates() -> list[Cell]:
    """Return the cells of CCE, GCE and DM at the paper's best setting, for the other noise rates."""
    cells = []
    for rate in (0, 0.2, 0.6, 0.8):
        for row, weighting in (("CCE", "CCE"), ("GCE", "GCE(0.7)")):
            cells.append(Cell(row, f"r = {rate}", ours(rate, weighting=weighting), printed(rate, row)))
        if rate == 0:  # the paper says lam = 0 and gives no beta
            clean = search_beta(lambda weighting: ours(0, weighting=weighting), 0, BETAS)
            cells.append(Cell("DM", "r = 0", clean, note="lam = 0 at r = 0, as the paper says, beta found by search"))
        else:
            cells.append(Cell("DM", f"r = {rate}", ours(rate, weighting=BEST[rate]), printed(rate, BEST[rate])))
    return cells


DIFFERS = (
    "The paper does not say how it trained ResNet-56; its numbers are those of its ablation and, beyond CCE and DM, "
    "not printed."
)
EXPERIMENT = [
    Experiment(
        name="cifar10_headline",
        title="CIFAR-10, 40 % symmetric noise, ResNet-56",
        protocol="ours",
        cells=tuple(
            cell
            for row, run in runs().items()
            for cell in (
                Cell(row, "lr 0.1", run, printed(0.4, row)),
                Cell(row, "own lr", search_rate(run, RATES)),
            )
        ),
        metrics=METRICS,
        seeds=(0, 1, 2),
        differs=DIFFERS + " A trial of a learning rate has 5,000 iterations.",
        cost=COST,
        cost_on=COST_ON,
    ),
    Experiment(
        name="cifar10_rates",
        title="CIFAR-10, other noise rates, ResNet-56, the paper's best setting of each",
        protocol="ours",
        cells=tuple(at_rates()),
        metrics=METRICS,
        differs=DIFFERS + " DM is DM(0.5, 12) at 20 %, DM(2, 12) at 60 and 80 %.",
        cost=COST,
        cost_on=COST_ON,
    ),
]
