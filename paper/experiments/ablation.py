"""Table 10 (appendix): emphasis mode and variance, CIFAR-10, ResNet-56, 20 to 80 % symmetric noise.

python -m paper run paper/experiments/ablation.py --only "r = 0.4" --jobs 4

72 runs of 20,000 iterations with 256 images each.
"""

from __future__ import annotations

from dataclasses import replace

from paper import Cell, Experiment, Reported
from paper.experiment import Choice
from paper.protocols import noisy_choice, ours, search_rate

RATES = (0.2, 0.4, 0.6, 0.8)
GRID = {0: (0.5, 1, 2, 4), 0.5: (4, 8, 12, 16), 1: (8, 12, 16, 20), 2: (12, 16, 20, 24)}  # lam: betas
METRICS = ("best", "final", "corrupted", "intact")
PRINTED: dict[float, dict[str, tuple[float, float, float, float]]] = {
    0.2: {
        "CCE": (86.5, 76.8, 95.7, 80.6),
        "DM(1, 0)": (83.5, 58.1, 50.6, 60.2),
        "DM(0, 2)": (84.9, 76.4, 85.3, 80.5),
        "DM(0.5, 12)": (89.4, 87.8, 81.5, 95.0),
        "DM(1, 16)": (87.3, 86.7, 78.4, 93.8),
        "DM(2, 24)": (85.8, 85.5, 76.0, 91.4),
    },
    0.4: {
        "CCE": (82.8, 60.9, 83.0, 64.4),
        "DM(1, 0)": (71.8, 44.9, 31.3, 45.8),
        "DM(0, 1)": (78.4, 65.6, 63.3, 66.6),
        "DM(0.5, 12)": (85.1, 79.9, 67.7, 85.7),
        "DM(1, 16)": (84.7, 83.3, 60.3, 88.9),
        "DM(2, 20)": (52.7, 52.7, 35.4, 53.6),
    },
    0.6: {
        "CCE": (69.5, 37.2, 84.1, 40.5),
        "DM(1, 0)": (69.9, 57.9, 40.1, 58.6),
        "DM(0, 0.5)": (72.3, 53.9, 42.1, 55.1),
        "DM(0.5, 12)": (77.5, 58.5, 55.5, 62.6),
        "DM(1, 12)": (71.9, 70.0, 41.0, 73.9),
        "DM(2, 12)": (80.2, 72.5, 44.9, 75.4),
    },
    0.8: {
        "CCE": (36.1, 16.1, 54.3, 18.4),
        "DM(1, 0)": (44.4, 28.2, 20.6, 28.8),
        "DM(0, 0.5)": (46.2, 21.3, 27.8, 23.1),
        "DM(0.5, 8)": (51.6, 22.4, 46.1, 24.4),
        "DM(1, 8)": (35.5, 31.5, 19.8, 32.3),
        "DM(2, 12)": (33.0, 32.8, 14.2, 32.6),
    },
}
WEIGHTINGS = ("CCE", "DM(1, 0)", *(f"DM({lam}, {beta})" for lam, betas in GRID.items() for beta in betas))
DIFFERS = (
    "The paper does not say how it trained ResNet-56. It prints the best of the four betas of each mode; all sixteen "
    "settings are rows here, and DM(1, 0) is its DM(beta=0)."
)
COST, COST_ON = 52, "an H200, training alone, four at a time (benchmarks/results/harness.json)"


def cell(rate: float, weighting: str) -> Cell:
    """Return the cell of one setting at one rate."""
    printed = PRINTED[rate].get(weighting, ())
    reported = tuple(Reported(metric, value) for metric, value in zip(METRICS, printed, strict=False))
    return Cell(weighting, f"r = {rate}", ours(rate, weighting=weighting), reported)


def own_rate(rate: float, weighting: str) -> Choice:
    """Return a choice of the learning rate of one setting, by trials scored on noisy labels."""
    return noisy_choice(search_rate(ours(rate, weighting=weighting)))


CELLS = tuple(cell(rate, weighting) for weighting in WEIGHTINGS for rate in RATES)
EXPERIMENT = [
    Experiment(
        name="ablation",
        title="Table 10: emphasis mode and variance, CIFAR-10, ResNet-56",
        protocol="ours",
        cells=CELLS,
        metrics=METRICS,
        differs=DIFFERS,
        cost=COST,
        cost_on=COST_ON,
    ),
    Experiment(
        name="ablation-cifar10",
        title="Table 10 with a learning rate for each setting, CIFAR-10, ResNet-56",
        protocol="ours",
        cells=tuple(replace(each, source=own_rate(float(each.column[4:]), each.row)) for each in CELLS),
        metrics=METRICS,
        seeds=(0, 1, 2),
        differs=DIFFERS + " Learning rates are chosen on a hold-out with noisy labels.",
        cost=COST,
        cost_on=COST_ON,
    ),
]
