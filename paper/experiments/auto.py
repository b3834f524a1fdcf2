"""Auto and its rivals, each with its published settings, at its own best learning rate of three.

python -m paper run paper/experiments/auto.py --only auto_digits --jobs 2 --device cpu
python -m paper run paper/experiments/auto.py --only auto_cifar10 --jobs 8

Learning rates are chosen on a hold-out of the training data with its noisy labels. Auto has one configuration. Rivals
that need a noise rate or matrix get the true one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paper import Cell, Experiment
from paper.protocols import noisy_choice, ours, search_rate
from reweigh.lab.spec import Run

Noise = tuple[str | None, float | None]
ROWS: Mapping[str, str] = {
    "CCE": "CCE",
    "GCE(0.7)": "GCE(0.7)",
    "SL": "SL(0.1, 9.21)",
    "DM(0.5, 12)": "DM(0.5, 12)",
    "Forward, true T": "Forward",
    "Co-teaching, true rate": "CoTeaching",
    "ELR": "ELR",
    "ProSelfLC": "ProSelfLC",
    "SELC": "SELC",
    "GCE, q rising": "GCE(linear(0.2, 1.5))",
    "Auto": "Auto",
    "Auto, no memory": "Auto(average=0.99)",
}
WEIGHTINGS = ("CCE", "GCE", "SL", "DM")
NEXT = [*range(1, 10), 0]
MATRICES = {  # noise -> the matrix for Forward, at a rate
    "symmetric": "symmetric({rate})",
    "pair": f"map({NEXT}, {{rate}})",
    "asymmetric_cifar10": "map([0, 1, 0, 5, 7, 3, 6, 7, 8, 1], {rate})",  # truck, bird, deer, cat <-> dog of CIFAR-10
}
SEEDS = (0, 1, 2)
METRICS = ("final", "best", "corrupted", "intact")


def objective(name: str, noise: Noise, elr: Mapping[str, str]) -> dict[str, str] | None:
    """Return the field of `Run` that a row sets; None where the row has no meaning."""
    kind, rate = noise
    if name.startswith(WEIGHTINGS):
        return {"weighting": name}
    if name == "Forward":
        return None if kind is None else {"loss": f"Forward({MATRICES[kind].format(rate=rate)})"}
    if name == "CoTeaching":
        return None if kind is None else {"method": f"CoTeaching({rate})"}
    return {"method": elr.get(kind or "", "ELR(3, 0.7)") if name == "ELR" else name}


def cells(
    columns: Mapping[str, Noise], base: Run, rates: tuple[float, ...], short: float, elr: Mapping[str, str]
) -> tuple[Cell, ...]:
    """Return the cells of a table with the rows of `ROWS`."""
    found = []
    for column, noise in columns.items():
        for row, name in ROWS.items():
            fields = objective(name, noise, elr)
            if fields is not None:
                changed: dict[str, Any] = {"weighting": None, "noise": noise[0], "rate": noise[1], **fields}
                found.append(Cell(row, column, noisy_choice(search_rate(replace(base, **changed), rates, short))))
    return tuple(found)


DIGITS = Run(data="digits", net="mlp-128", weighting="CCE", iterations=600, lr=0.03, evaluate_every=60)
CIFAR10 = ours(0, weighting="CCE")
TIN100 = replace(CIFAR10, data="tin100", net="resnet44")
CLEAN: Mapping[str, Noise] = {"clean": (None, None)}


def symmetric(*rates: float) -> dict[str, Noise]:
    return {f"symmetric {rate}": ("symmetric", rate) for rate in rates}


EXPERIMENT = [
    Experiment(
        name="auto_digits",
        title="Auto and its rivals: digits",
        protocol="ours",
        cells=cells(
            {**CLEAN, **symmetric(0.4, 0.6, 0.8), "pair 0.35": ("pair", 0.35)}, DIGITS, (0.01, 0.03, 0.1), 1, {}
        ),
        metrics=METRICS,
        seeds=SEEDS,
        differs="Not in the paper. One hidden layer of 128, 600 iterations of 128; trials of a learning rate are as "
        "long as the runs. Auto was developed on digits, too.",
    ),
    Experiment(
        name="auto_cifar10",
        title="Auto and its rivals: CIFAR-10, ResNet-56",
        protocol="ours",
        cells=cells(
            {**CLEAN, **symmetric(0.2, 0.4, 0.6, 0.8), "asymmetric 0.4": ("asymmetric_cifar10", 0.4)},
            CIFAR10,
            (0.03, 0.1, 0.3),
            0.25,
            {"asymmetric_cifar10": "ELR(1, 0.9)"},
        ),
        metrics=METRICS,
        seeds=SEEDS,
        differs="Not in the paper. ELR has its published settings for each kind of noise.",
    ),
    Experiment(
        name="auto_tin100",
        title="Auto and its rivals: 100 classes of Tiny-ImageNet, ResNet-44",
        protocol="ours",
        cells=tuple(
            cell
            for cell in cells(
                {**CLEAN, **symmetric(0.4), "pair 0.4": ("pair", 0.4)},
                TIN100,
                (0.03, 0.1, 0.3),
                0.25,
                dict.fromkeys(("", "symmetric", "pair"), "ELR(7, 0.9)"),
            )
            if (cell.row, cell.column) != ("Forward, true T", "pair 0.4")  # its matrix is written for ten classes
        ),
        metrics=METRICS,
        seeds=SEEDS,
        differs="Not in the paper.",
    ),
]
