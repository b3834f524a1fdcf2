"""Claims that hold, that do not, and that were not measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from paper import Cell, Experiment, Reported
from paper.claims import CLAIMS, verdicts
from paper.findings import Finding, Results
from paper.protocols import ours
from paper.tables import collect

Measured = Callable[..., Finding]
NAMES = ["p", "stopping", "intact", "mode", "cce", "dm", "collapse", "correction", "rate"]
WORDS = {name: i for i, name in enumerate(NAMES)}


def judge(which: str, *saved: Results) -> tuple[str, str]:
    found = verdicts({each.experiment.name: each for each in saved})[WORDS[which]]
    return found.verdict, found.evidence


@pytest.fixture
def table(measured: Measured) -> Callable[..., Results]:
    """name, {(row, weighting, rate): metrics} -> saved results; rows in brackets are printed in the paper."""

    def make(name: str, cells: dict[tuple[str, str, float], dict], columns: dict | None = None) -> Results:
        made, store = [], {}
        for (row, weighting, rate), metrics in cells.items():
            run = ours(rate, weighting=weighting)
            reported = (Reported("best", 80.0),) if row.startswith("DM") else ()
            made.append(Cell(row, f"r = {rate:g}", run, reported))
            store[run.folder_name()] = measured(run, columns, **metrics)
        return collect(Experiment(name, name, "ours", tuple(made)), (0,), store)

    return make


def test_nothing_measured() -> None:
    found = verdicts({})
    assert len(found) == len(CLAIMS) == len(WORDS)
    assert {each.verdict for each in found} == {"not measured"}


def test_noisy_labels_below_clean_ones(table: Callable[..., Results]) -> None:
    cells = {("CCE", "CCE", 0.4): {"final": 0.5}}
    steps = {"step": [1, 2], "p_clean": [0.5, 0.9]}
    good = table("a", cells, steps | {"p_noisy": [0.2, 0.8]})
    assert judge("p", good) == ("holds", "below in 2 of 2 evaluations of 1 runs")
    bad = table("a", cells, steps | {"p_noisy": [0.2, 0.9]})
    assert judge("p", bad) == ("does not hold", "below in 1 of 2 evaluations of 1 runs")
    assert judge("p", good, good)[1] == "below in 2 of 2 evaluations of 1 runs"  # not counted twice


def test_early_stopping(table: Callable[..., Results]) -> None:
    steady = {
        ("DM", "DM(0.5, 8)", 0.4): {"final": 0.80, "best": 0.805},
        ("CCE", "CCE", 0.4): {"final": 0.1, "best": 1.0},
    }
    assert judge("stopping", table("a", steady))[0] == "holds"  # CCE does not matter, nor does DM on clean data
    assert judge("stopping", table("a", steady | {("DM", "DM(1, 8)", 0): {"final": 0.1, "best": 1}}))[0] == "holds"
    falling = steady | {("DM(1)", "DM(1, 16)", 0.2): {"final": 0.70, "best": 0.8}}
    verdict, seen = judge("stopping", table("a", falling))
    assert verdict == "does not hold"
    assert "most: 10.00 (a, r = 0.2, DM(1))" in seen


def test_early_stopping_needs_best_and_final_of_the_same_seeds(measured: Measured) -> None:
    run = ours(0.4, weighting="DM(0.5, 8)")
    cell = Cell("DM", "r = 0.4", run, (Reported("best", 80.0),))
    scores = [{"final": 0.8, "best": 0.8}, {"final": 0.1}]  # diverged before the first evaluation
    found = [measured(replace(run, seed=seed), **metrics) for seed, metrics in enumerate(scores)]
    saved = collect(Experiment("a", "a", "ours", (cell,)), (0, 1), {each.name: each for each in found})
    assert judge("stopping", saved)[0] == "not measured"


def test_training_accuracy_tracks_test_accuracy(table: Callable[..., Results]) -> None:
    names = ["CCE", "MAE", "MSE", "GCE(0.7)"]

    def at(values: list[tuple[float, float]]) -> Results:
        return table("a", {(n, n, 0.4): {"intact": i, "final": f} for n, (i, f) in zip(names, values, strict=True)})

    assert judge("intact", at([(0.1, 0.2), (0.2, 0.3), (0.3, 0.4), (0.4, 0.5)]))[0] == "holds"
    assert judge("intact", at([(0.1, 0.5), (0.2, 0.3), (0.3, 0.4), (0.4, 0.2)]))[0] == "does not hold"
    assert judge("intact", at([(0.1, 0.5)] * 4))[0] == "not measured"  # nothing varies


def ablation(table: Callable[..., Results], best: dict[float, float], name: str = "ablation") -> Results:
    """At every rate the lam of `best` wins; beta = 24 ends low for lam = 2."""
    cells = {}
    for rate, winner in best.items():
        for lam in (0, 0.5, 1, 2):
            for beta in (8, 12, 24):
                final = (0.8 if lam == winner else 0.6) - (0.3 if (lam, beta) == (2, 24) else 0)
                cells[f"DM({lam}, {beta})", f"DM({lam}, {beta})", rate] = {"final": final}
    return table(name, cells)


def test_the_best_mode_rises(table: Callable[..., Results]) -> None:
    assert judge("mode", ablation(table, {0.2: 0.5, 0.4: 1, 0.6: 2, 0.8: 2})) == (
        "holds",
        "ablation: best mode 0.33 at r = 0.2, 0.5 at r = 0.4, 0.67 at r = 0.6, 0.67 at r = 0.8",
    )
    assert judge("mode", ablation(table, {0.2: 1, 0.4: 0.5, 0.6: 2}))[0] == "does not hold"
    assert judge("mode", ablation(table, {0.2: 1, 0.4: 1, 0.6: 1}))[0] == "does not hold"
    assert judge("mode", ablation(table, {0.2: 0.5, 0.4: 1}))[0] == "not measured"
    assert judge("mode", ablation(table, {0.2: 0.5, 0.4: 1, 0.6: 2}, "another"))[0] == "not measured"


def test_ablations_on_several_data_sets_are_judged_separately(table: Callable[..., Results]) -> None:
    rising = ablation(table, {0.2: 0.5, 0.4: 1, 0.6: 2})
    small = ablation(table, {0.2: 1, 0.4: 1, 0.6: 0.5}, "ablation-digits")
    assert judge("mode", small)[1].startswith("ablation-digits: best mode 0.5 at r = 0.2")
    verdict, seen = judge("mode", rising, small)
    assert verdict == "does not hold"
    assert seen.index("ablation: best mode 0.33") < seen.index("; ablation-digits: best mode 0.5")


def test_collapse_at_large_variance(table: Callable[..., Results]) -> None:
    verdict, seen = judge("collapse", ablation(table, {0.4: 1}))
    assert verdict == "holds"
    assert "most: 30.0 points (ablation, r = 0.4, lam = 2, beta = 24)" in seen
    flat = {(f"DM(1, {beta})", f"DM(1, {beta})", 0.4): {"final": 0.8} for beta in (8, 12, 16)}
    assert judge("collapse", table("ablation", flat))[0] == "does not hold"


def test_cce_and_dm_against_other_rows(table: Callable[..., Results]) -> None:
    def at(cce: float, dm: float, rate: float = 0.4) -> Results:
        rows = {"CCE": ("CCE", cce), "GCE": ("GCE(0.7)", 0.8), "MAE": ("MAE", 0.3), "MSE": ("MSE", 0.5)}
        rows |= {"DM": ("DM(1, 8)", dm), "DM(1, 0)": ("DM(1, 0)", 0.99 if dm < 0.5 else 0.2)}
        return table("a", {(row, weighting, rate): {"final": value} for row, (weighting, value) in rows.items()})

    assert judge("cce", at(0.79, 0.9))[0] == "holds"
    assert judge("cce", at(0.75, 0.9)) == (
        "does not hold",
        "within 2 points in 0 of 1 columns; most: 5.00 (a, r = 0.4)",
    )
    assert judge("cce", at(0.79, 0.9, rate=0))[0] == "not measured"
    assert judge("dm", at(0.79, 0.9)) == ("holds", "best in 1 of 1 columns")
    assert judge("dm", at(0.79, 0.4))[1] == "best in 0 of 1 columns; not in a, r = 0.4: DM(1, 0) 99.0, DM 40.0"


def test_label_correction(table: Callable[..., Results]) -> None:
    def gain(value: float) -> Results:
        cells = {
            ("DM", "DM(1, 8)", 0.4): {"final": 0.8, "retrained": 0.8 + value},
            ("CCE", "CCE", 0.4): {"final": 0.8, "retrained": 0.1},
        }
        saved = table("a", cells)
        return Results(
            Experiment("a", "a", "ours", saved.experiment.cells, ("final", "retrained")), saved.entries, saved.trials
        )

    assert judge("correction", gain(0.02)) == ("holds", "+2.0 (a, r = 0.4, DM)")
    assert judge("correction", gain(-0.01))[0] == "does not hold"


def test_one_learning_rate(measured: Measured) -> None:
    def at(column: str, **finals: float) -> tuple[list[Cell], dict[str, Finding]]:
        runs = {row: replace(ours(0.4, weighting=row), lr=0.3 if column == "own lr" else 0.1) for row in finals}
        found = {run.folder_name(): measured(run, final=finals[row]) for row, run in runs.items()}
        return [Cell(row, column, run) for row, run in runs.items()], found

    def both(**own: float) -> Results:
        (one, shared), (other, chosen) = at("lr 0.1", CCE=0.7, MAE=0.5), at("own lr", **own)
        return collect(Experiment("a", "a", "ours", (*one, *other)), (0,), shared | chosen)

    assert judge("rate", both(CCE=0.71, MAE=0.48)) == ("holds", "within 2 points in 2 of 2 rows")
    seen = "within 2 points in 1 of 2 rows; MAE from 50.0 to 80.0"
    assert judge("rate", both(CCE=0.71, MAE=0.8)) == ("does not hold", seen)
    assert judge("rate", both())[0] == "not measured"
