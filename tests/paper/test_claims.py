"""Claims that hold, hold mostly, do not hold, and cannot be judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from paper import Cell, Experiment, Reported
from paper.claims import CLAIMS, Verdict, verdicts
from paper.findings import Finding, Results
from paper.protocols import ours
from paper.tables import collect

Measured = Callable[..., Finding]
Table = Callable[..., Results]
NAMES = ["p", "stopping", "intact", "mode", "cce", "dm", "collapse", "correction", "rate"]


def judge(which: str, *saved: Results) -> Verdict:
    return verdicts({each.experiment.name: each for each in saved})[NAMES.index(which)]


@pytest.fixture
def table(measured: Measured) -> Table:
    """name, {(row, weighting, rate): metrics} -> saved results with one seed; DM is printed in the paper."""

    def make(name: str, cells: dict[tuple[str, str, float], dict], columns: dict | None = None) -> Results:
        made, store = [], {}
        for (row, weighting, rate), metrics in cells.items():
            run = ours(rate, weighting=weighting)
            reported = (Reported("best", 80.0),) if row.startswith("DM") else ()
            made.append(Cell(row, f"r = {rate:g}", run, reported))
            store[run.folder_name()] = measured(run, columns, **metrics)
        shown = ("final", "best", "retrained")
        return collect(Experiment(name, name, "ours", tuple(made), shown), (0,), store)

    return make


def test_nothing_measured() -> None:
    found = verdicts({})
    assert len(found) == len(CLAIMS) == len(NAMES)
    assert {each.verdict for each in found} == {"cannot be said"}


@pytest.mark.parametrize(
    ("drops", "verdict", "counts"),
    [
        ((0.5, 0.9), "cannot be said", (2, 2, 2)),
        ((0.5, 0.9, 2.0), "holds", (2, 3, 3)),
        ((0.5, 0.9, 2.1), "holds mostly", (2, 2, 3)),
        ((0.5, 5, 2.1), "does not hold", (1, 1, 2)),
    ],
)
def test_the_middle_threshold_decides(table: Table, drops: tuple[float, ...], verdict: str, counts: tuple) -> None:
    cells = {
        (f"DM({i})", f"DM(0.5, {i + 1})", 0.4): {"final": 0.8, "best": 0.8 + drop / 100} for i, drop in enumerate(drops)
    }
    cells[("CCE", "CCE", 0.4)] = {"final": 0.1, "best": 1.0}  # neither CCE counts nor DM on clean data
    cells[("DM", "DM(1, 8)", 0)] = {"final": 0.1, "best": 1.0}
    found = judge("stopping", table("a", cells))
    assert (found.verdict, found.counts()) == (verdict, counts)
    assert [case.value for case in found.exceptions] == pytest.approx([drop for drop in drops if drop > 2])


def test_noisy_labels_below_clean_ones(table: Table) -> None:
    cells = {(name, name, 0.4): {"final": 0.5} for name in ("CCE", "MAE", "MSE")}
    steps = {"step": [1, 2], "p_clean": [0.5, 0.9]}
    good = table("a", cells, steps | {"p_noisy": [0.2, 0.8]})
    assert judge("p", good).counts() == (3, 3, 3)
    assert judge("p", good).verdict == "holds"
    bad = table("b", cells, steps | {"p_noisy": [0.2, 0.9]})
    assert judge("p", bad).verdict == "does not hold"
    assert judge("p", bad).counts() == (0, 0, 3)
    assert len(judge("p", good, good).cases) == 3  # not counted twice


def test_early_stopping_needs_best_and_final_of_the_same_seeds(measured: Measured) -> None:
    run = ours(0.4, weighting="DM(0.5, 8)")
    cell = Cell("DM", "r = 0.4", run, (Reported("best", 80.0),))
    scores = [{"final": 0.8, "best": 0.8}, {"final": 0.1}]  # diverged before the first evaluation
    found = [measured(replace(run, seed=seed), **metrics) for seed, metrics in enumerate(scores)]
    saved = collect(Experiment("a", "a", "ours", (cell,)), (0, 1), {each.name: each for each in found})
    assert not judge("stopping", saved).cases


def test_training_accuracy_tracks_test_accuracy(table: Table) -> None:
    names = ["CCE", "MAE", "MSE", "GCE(0.7)"]

    def at(values: list[tuple[float, float]]) -> list[float]:
        cells = {(n, n, 0.4): {"intact": i, "final": f} for n, (i, f) in zip(names, values, strict=True)}
        return [case.value for case in judge("intact", table("a", cells)).cases]

    assert at([(0.1, 0.2), (0.2, 0.3), (0.3, 0.4), (0.4, 0.5)]) == pytest.approx([1])
    assert at([(0.1, 0.5), (0.2, 0.4), (0.3, 0.3), (0.4, 0.2)]) == pytest.approx([-1])
    assert not at([(0.1, 0.5)] * 4)  # nothing varies


def ablation(table: Table, best: dict[float, float], name: str = "ablation") -> Results:
    """At every rate the lam of `best` wins; beta = 24 ends low for lam = 2."""
    cells = {}
    for rate, winner in best.items():
        for lam in (0, 0.5, 1, 2):
            for beta in (8, 12, 24):
                final = (0.8 if lam == winner else 0.6) - (0.3 if (lam, beta) == (2, 24) else 0)
                cells[f"DM({lam}, {beta})", f"DM({lam}, {beta})", rate] = {"final": final}
    return table(name, cells)


def test_the_best_mode_rises(table: Table) -> None:
    rising = judge("mode", ablation(table, {0.2: 0, 0.4: 0.5, 0.6: 1, 0.8: 2}))
    assert rising.verdict == "holds"
    assert rising.cases[0].where == "ablation, 0 at r = 0.2, 0.33 at r = 0.4"
    constant = judge("mode", ablation(table, {0.2: 1, 0.4: 1, 0.6: 1, 0.8: 1}))
    assert (constant.verdict, constant.counts()) == ("does not hold", (0, 0, 3))
    assert not judge("mode", ablation(table, {0.2: 0.5, 0.4: 1}, "another")).cases


def test_ablations_on_several_data_sets_are_cases_of_their_own(table: Table) -> None:
    rising = ablation(table, {0.2: 0.5, 0.4: 1, 0.6: 2})
    small = ablation(table, {0.2: 1, 0.4: 1, 0.6: 0.5}, "ablation-digits")
    found = judge("mode", rising, small)
    assert [case.where.partition(",")[0] for case in found.cases] == ["ablation"] * 2 + ["ablation-digits"] * 2
    assert found.counts() == (2, 2, 3)


def test_collapse_at_large_variance(table: Table) -> None:
    found = judge("collapse", ablation(table, {0.2: 1, 0.4: 1, 0.6: 1}))
    assert found.verdict == "holds"  # three cases are enough for a claim that there are such cases
    assert [case.where for case in found.exceptions] == [
        f"ablation, r = {r}, lam = 2, beta = 24" for r in (0.2, 0.4, 0.6)
    ]
    flat = {(f"DM({lam}, {b})", f"DM({lam}, {b})", 0.4): {"final": 0.8} for lam in (0, 1, 2) for b in (8, 12, 16)}
    assert judge("collapse", table("ablation", flat)).verdict == "does not hold"


def test_cce_and_dm_against_other_rows(table: Table) -> None:
    def at(cce: float, dm: float, rate: float = 0.4) -> Results:
        rows = {"CCE": ("CCE", cce), "GCE": ("GCE(0.7)", 0.8), "MAE": ("MAE", 0.3), "MSE": ("MSE", 0.5)}
        rows |= {"DM": ("DM(1, 8)", dm), "DM(1, 0)": ("DM(1, 0)", 0.99 if dm < 0.5 else 0.2)}
        cells = {(row, weighting, rate): {"final": value, "best": 0.9} for row, (weighting, value) in rows.items()}
        return table("a", cells)

    (case,) = judge("cce", at(0.75, 0.9)).cases
    assert (case.value, case.best) == pytest.approx((5, 0))
    assert case.where == "a, r = 0.4: GCE 80.0, CCE 75.0"
    assert not judge("cce", at(0.79, 0.9, rate=0)).cases
    (case,) = judge("dm", at(0.79, 0.9)).cases
    assert case.value == pytest.approx(-10)
    (case,) = judge("dm", at(0.79, 0.4)).cases
    assert case.where == "a, r = 0.4: DM(1, 0) 99.0, DM 40.0"
    without = {(row, row, 0.4): {"final": 0.5} for row in ("CCE", "MAE", "DM(1, 8)")}
    assert not judge("dm", table("a", without)).cases  # without GCE there is no rival


def test_columns_with_the_same_runs_are_one_case(measured: Measured) -> None:
    rows = {"CCE": "CCE", "GCE": "GCE(0.7)", "DM": "DM(1, 8)"}
    runs = {row: ours(0.4, weighting=weighting) for row, weighting in rows.items()}
    cells = tuple(Cell(row, column, run) for column in ("lr 0.1", "own lr") for row, run in runs.items())
    store = {run.folder_name(): measured(run, final=0.5) for run in runs.values()}
    assert len(judge("dm", collect(Experiment("a", "a", "ours", cells), (0,), store)).cases) == 1


def test_label_correction(table: Table) -> None:
    cells = {
        ("DM", "DM(1, 8)", 0.4): {"final": 0.8, "retrained": 0.82},
        ("CCE", "CCE", 0.4): {"final": 0.8, "retrained": 0.1},
    }
    (case,) = judge("correction", table("a", cells)).cases
    assert (case.where, case.value) == ("a, r = 0.4, DM: +2.0", pytest.approx(2))


def test_one_learning_rate(measured: Measured) -> None:
    def at(column: str, **finals: float) -> tuple[list[Cell], dict[str, Finding]]:
        runs = {row: replace(ours(0.4, weighting=row), lr=0.3 if column == "own lr" else 0.1) for row in finals}
        found = {run.folder_name(): measured(run, final=finals[row]) for row, run in runs.items()}
        return [Cell(row, column, run) for row, run in runs.items()], found

    def both(**own: float) -> Verdict:
        (one, shared), (other, chosen) = at("lr 0.1", CCE=0.7, MAE=0.5, MSE=0.6), at("own lr", **own)
        return judge("rate", collect(Experiment("a", "a", "ours", (*one, *other)), (0,), shared | chosen))

    assert both(CCE=0.71, MAE=0.48, MSE=0.6).verdict == "holds"
    found = both(CCE=0.71, MAE=0.8, MSE=0.6)
    assert (found.verdict, found.counts()) == ("holds mostly", (2, 2, 2))
    assert [case.where for case in found.exceptions] == ["a, MAE from 50.0 to 80.0"]
    assert not both().cases
