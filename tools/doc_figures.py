"""Draw the figures of README and docs: `PYTHONPATH=. python tools/doc_figures.py docs/figures`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from paper.figures import density_figure
from reweigh import CCE, DM, GCE, MAE, Tapered, Weighting, batch_stats
from reweigh.emphasis import potential, unit_weighting
from reweigh.lab.figures import Bars, Lines, Series, write_figures

P = torch.linspace(0, 1, 401, dtype=torch.float64)


def main(folder: Path) -> None:
    """Write every figure into a folder, as SVG; that of README also as PNG."""
    shown = density_figure(
        [
            ("CCE, cross entropy", CCE()),
            ("MAE", MAE()),
            ("GCE(0.7)", GCE(0.7)),
            ("DM(λ=0.5, β=8)", DM(0.5, 8)),
            ("DM(λ=1, β=16)", DM(1, 16)),
        ],
        "How much an example counts",
    )
    for suffix in ("svg", "png"):
        write_figures([shown], folder / f"densities.{suffix}")
    modes = [(f"λ = {lam:g}, β = {beta:g}", DM(lam, beta)) for lam, beta in ((0, 2), (0.5, 8), (1, 12), (2, 20))]
    write_figures([density_figure(modes, "λ moves the mode")], folder / "mode.svg")
    widths = [(f"λ = 0.5, β = {beta:g}", DM(0.5, beta)) for beta in (0, 4, 8, 16)]
    write_figures([density_figure(widths, "β sets the variance")], folder / "variance.svg")
    write_figures([taper()], folder / "taper.svg")
    write_figures([objectives()], folder / "objective.svg")
    write_figures([batch()], folder / "batch.svg")


def taper() -> Lines:
    """Return w near p = 1, with and without taper."""
    log_q = torch.linspace(-10, 0, 401, dtype=torch.float64)
    q = 10**log_q
    curves: list[tuple[str, Weighting]] = [
        ("CCE", CCE()),
        ("DM(0.5, 8), no taper", DM(0.5, 8)),
        ("DM(0.5, 8), taper 5e-7", Tapered(DM(0.5, 8), 5e-7)),
        ("DM(0.5, 8), taper 1e-3", Tapered(DM(0.5, 8), 1e-3)),
    ]
    series = tuple(Series(name, tuple(log_q.tolist()), tuple(w(1 - q, q).tolist())) for name, w in curves)
    axes = ("log₁₀ (1 - p); p approaches 1 to the left", "w")
    return Lines("taper", "The taper near p = 1", "", *axes, series, top=3.0)


def objectives() -> Lines:
    """Return the objectives of five weightings with unit integral."""
    p = P[2:-2]
    margins = p.log() - (1 - p).log()
    series = []
    for name, weighting, tapered in (
        ("CCE", CCE(), 0.0),
        ("MAE", MAE(), 0.0),
        ("GCE(0.7)", GCE(0.7), 0.0),
        ("DM(0.5, 8)", DM(0.5, 8), 5e-7),
        ("DM(1, 16)", DM(1, 16), 5e-7),
    ):
        values = potential(unit_weighting(weighting), margins, tapered).tolist()
        series.append(Series(name, tuple(p.tolist()), tuple(values)))
    axes = ("p, the probability of the label", "objective L, for ∫ w dp = 1")
    return Lines("objective", "The objective", "", *axes, tuple(series), top=6.0)


def batch() -> Bars:
    """Return the share of each example in the gradient of one batch."""
    p = torch.tensor([0.98, 0.9, 0.7, 0.5, 0.3, 0.1, 0.02], dtype=torch.float64)
    logits = p.logit()[:, None] * torch.tensor([[1.0, 0.0]])
    target = torch.zeros(len(p), dtype=torch.long)
    weightings = (("CCE", CCE()), ("GCE(0.7)", GCE(0.7)), ("DM(0.5, 8)", DM(0.5, 8)))
    sets = tuple((name, tuple(batch_stats(logits, target, w).share.tolist())) for name, w in weightings)
    names = tuple(f"{value:g}" for value in p.tolist())
    return Bars("batch", "Seven examples share one gradient", "", "p of the example", "share", names, sets)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/figures"))
