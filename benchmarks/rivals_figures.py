"""Draw two figures for docs/methods.md, as SVG and PNG (extra `plot`).

    python benchmarks/rivals_figures.py

docs/figures/rivals             the weighting of every loss, and the cosine with cross entropy's direction
docs/figures/rivals-accuracy    final accuracy minus that of CCE, from benchmarks/results/rivals.csv
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rivals_data import DATA
from torch import Tensor

from reweigh.criterion import Criterion
from reweigh.emphasis import emphasis_of
from reweigh.lab.objectives import loss_from
from reweigh.lab.spec import parse
from reweigh.lab.weightings import weighting_from
from reweigh.streams import generator

CLASSES, DRAWS, POINTS = 10, 48, 49
FIGURES = Path(__file__).parent.parent / "docs" / "figures"
RESULTS = Path(__file__).parent / "results" / "rivals.csv"
SAME, TURNED, GREY = "#0072b2", "#d55e00", "#bbbbbb"  # Okabe and Ito's, which colour-blind readers can tell apart
FAMILIES = {"weighting": SAME, "loss": TURNED, "method": "#009e73", "procedure": "#cc79a7"}
LONG_TAIL = [round(1000 * 100 ** (-k / 9)) for k in range(CLASSES)]

WEIGHTINGS = [
    *("CCE", "MAE", "MSE", "GCE(0.7)", "TruncatedGCE(0.7, 0.5)", "SL(0.1, 9.21)", "Focal(2)", "Focal(2, detach=True)"),
    *("PHuber(2)", "AGCE(0.6, 0.6)", "AUL(5.5, 3)", "AEL(2.5)", "ForwardSymmetric(0.4, 10)", "IMAE(8)", "DM(0.5, 8)"),
    *("DM(2, 8)", "Normal(0.3, 8)", "Exponential(-1)", "Beta(2, 2)", "Uniform"),
]
LOSSES = [
    *("FullMAE", "Forward(symmetric(0.4))", "LabelSmoothing(0.1)", "BootstrapSoft(0.95)", "BootstrapHard(0.8)"),
    *("Forward(map([1,2,3,4,5,6,7,8,9,0],0.4))", "Backward(symmetric(0.4))", "BalancedSoftmax", "LogitAdjustment"),
    *("NCE_RCE", "NCE_AGCE", "ANL_CE", "LogitClip(1)", "Brier"),
]
SHORT = {
    "Forward(map([1,2,3,4,5,6,7,8,9,0],0.4))": "Forward(pairs, 0.4)",
    "BalancedSoftmax": "BalancedSoftmax, common class",
    "LogitAdjustment": "LogitAdjustment, rare class",
}
OF_CLASS = {
    "BalancedSoftmax": 0,
    "LogitAdjustment": CLASSES - 1,
}  # for the others the class makes no difference


def main() -> None:
    """Draw both figures, the second only if there are results."""
    torch.set_num_threads(1)
    rcParams.update({"svg.hashsalt": "reweigh", "svg.fonttype": "none", "font.size": 8})
    save(emphasis_page(), "rivals")
    if RESULTS.exists():
        save(accuracy_page(), "rivals-accuracy")


def save(figure: Figure, name: str) -> None:
    """Write both files; equal figures give equal bytes."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURES / f"{name}.svg", metadata={"Date": None})
    figure.savefig(FIGURES / f"{name}.png", dpi=110)


def criterion_of(text: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the criterion of an expression, a weighting or a loss."""
    if text in WEIGHTINGS:
        return Criterion(weighting_from(parse(text)))
    loss = loss_from(parse(text), CLASSES, LONG_TAIL)
    return loss if text not in OF_CLASS else of_class(loss, OF_CLASS[text])


def of_class(loss: Callable[[Tensor, Tensor], Tensor], label: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss for examples of one class: swaps columns so that every target has that label."""

    def swapped(logits: Tensor, target: Tensor) -> Tensor:
        order = torch.arange(CLASSES).repeat(len(target), 1)
        order[torch.arange(len(target)), target] = label
        order[:, label] = target
        return loss(logits.gather(1, order), torch.full_like(target, label))

    return swapped


def emphasis_page() -> Figure:
    """Draw one panel per criterion: w over p as a density, and the cosine with cross entropy's direction."""
    columns = 7
    names = [*WEIGHTINGS, *LOSSES]
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(14, 1.9 * rows + 0.8), layout="constrained")
    figure.suptitle(
        "Weighting w over p as a density (mean over random logits, band: 10th to 90th percentile); "
        "dashed: cosine with the direction of cross entropy's gradient.\n"
        "Blue: the direction is that of cross entropy everywhere. Orange: the direction differs. Grey: CCE.",
        fontsize=9,
    )
    plain = measure(criterion_of("CCE"))[1].mean(0)
    for i, name in enumerate(names):
        panel(figure.add_subplot(rows, columns, i + 1), name, plain)
    return figure


def panel(axes: Axes, name: str, plain: Tensor) -> None:
    """Draw one criterion."""
    p, w, cosine = measure(criterion_of(name))
    least = float(cosine.min())
    colour = SAME if least > 1 - 1e-9 else TURNED
    scale = w.mean()
    low, high = (w / scale).quantile(torch.tensor([0.1, 0.9], dtype=torch.float64), dim=0)
    axes.plot(p, plain / plain.mean(), color=GREY, linewidth=1)
    axes.fill_between(p, low, high, color=colour, alpha=0.25, linewidth=0)
    axes.plot(p, w.mean(0) / scale, color=colour, linewidth=1.8)
    axes.plot(p, cosine.mean(0), color="black", linewidth=0.8, linestyle="dashed")
    axes.set(xlim=(0, 1), ylim=(min(0.0, float(cosine.mean(0).min()) - 0.05), 3.2))
    axes.set_title(SHORT.get(name, name), fontsize=8, pad=3)
    axes.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
    axes.set_yticks([0, 1, 2, 3])
    axes.spines[["top", "right"]].set_visible(False)
    if colour == TURNED:
        axes.text(0.97, 0.93, f"cosine ≥ {least:.3f}", ha="right", va="top", transform=axes.transAxes, fontsize=7)


def measure(criterion: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return p (P,), w and cosine (draws, P), each draw with new random off-target logits."""
    draws = [
        emphasis_of(criterion, CLASSES, points=POINTS, generator=generator(0, "rivals", draw)) for draw in range(DRAWS)
    ]
    w = torch.stack([draw.w for draw in draws])
    cosine = torch.stack([draw.cosine for draw in draws])
    return draws[0].p, w, torch.where(w > 0, cosine, 1.0)  # a zero gradient has no direction


def accuracy_page() -> Figure:
    """Draw one panel per problem, methods in order of their mean gain over both."""
    with RESULTS.open(newline="") as file:
        lines = list(csv.DictReader(file))
    gain: dict[str, list[float]] = {}
    for line in lines:
        gain.setdefault(line["rival"], []).append(float(line["minus_cce"]))
    names = sorted(gain, key=lambda name: sum(gain[name]) / len(gain[name]))
    figure = Figure(figsize=(13, 0.19 * len(names) + 1.2), layout="constrained")
    figure.suptitle(
        "Final test accuracy minus that of CCE, same seed and noise, each at its best of three learning rates; "
        "mean of five seeds, bar: standard deviation",
        fontsize=10,
    )
    axes: Any = figure.subplots(1, 2, sharey=True)
    for data, one in zip(DATA, axes, strict=True):
        for line in lines:
            if line["data"] == data:
                y, colour = names.index(line["rival"]), FAMILIES[line["family"]]
                spread = float(line["minus_cce_deviation"])
                one.errorbar(float(line["minus_cce"]), y, xerr=spread, fmt="o", color=colour, markersize=4, linewidth=1)
        cce = next(line for line in lines if line["data"] == data and line["rival"] == "CCE")
        one.axvline(0, color=GREY, linewidth=1)
        one.set_title(
            f"{data}, 40 % wrong labels: CCE {float(cce['accuracy']):.1f} ± {float(cce['deviation']):.1f}", fontsize=9
        )
        one.set_xlabel("percentage points")
        one.set_yticks(range(len(names)), names)
        one.set_ylim(-0.7, len(names) - 0.3)
        one.grid(axis="y", color="#eeeeee")
        one.spines[["top", "right", "left"]].set_visible(False)
    for family, colour in FAMILIES.items():
        axes[1].plot([], [], "o", color=colour, label=family)
    axes[1].legend(loc="lower right")
    return figure


if __name__ == "__main__":
    main()
