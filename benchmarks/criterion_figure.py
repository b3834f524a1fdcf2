"""The figure of criterion.py: time relative to a copy of the logits, for every shape."""

from __future__ import annotations

import csv
from pathlib import Path

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot

METHODS = {
    "cross entropy": ("#9a9a9a", "o", "cross entropy, eager"),
    "cross entropy, compiled": ("#5b5b5b", "s", "cross entropy, compiled"),
    "Liger, in place": ("#c8953d", "D", "Liger cross entropy"),
    "any weighting": ("#7fb3d5", "v", "reweigh, any weighting"),
    "two passes": ("#1b6ca8", "^", "reweigh, two passes (batch DN)"),
    "one pass": ("#c8553d", "*", "reweigh, one pass"),
}


def draw(path: Path) -> None:
    """Draw two logarithmic panels, eager and in a CUDA graph; lower is faster, 1 is a copy of the logits."""
    lines = path.read_text().splitlines()
    notes = dict(line[2:].split(": ", 1) for line in lines if line.startswith("#"))
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    ms = {(row["n"], row["classes"], row["dtype"], row["mode"], row["method"]): float(row["ms"]) for row in rows}
    shapes = list(dict.fromkeys(key[:3] for key in ms if not key[4].startswith("linear")))
    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4.6), sharey=True, layout="constrained")
    for axes, mode in zip(panels, ("eager", "graph"), strict=True):
        for method, (colour, marker, label) in METHODS.items():
            points = [
                (x, ms[(*shape, mode, method)] / ms[(*shape, mode, "copy")])
                for x, shape in enumerate(shapes)
                if (*shape, mode, method) in ms
            ]
            if points:
                axes.plot(*zip(*points, strict=True), marker=marker, color=colour, label=label, linewidth=1.2)
        axes.axhline(1, color="#333333", linewidth=0.8, linestyle="--")
        axes.set(yscale="log", title="eager" if mode == "eager" else "in a CUDA graph")
        names = [f"{n} x {c} {'bf16' if d == 'bfloat16' else 'fp32'}" for n, c, d in shapes]
        axes.set_xticks(range(len(shapes)), names, rotation=45, ha="right", fontsize=8)
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("forward + backward, times a copy of the logits")
    panels[0].legend(frameon=False, fontsize=8)
    figure.suptitle(f"The criterion on {notes['device']}, torch {notes['torch']}")
    figure.savefig(path.with_suffix(".png"), dpi=150)
