from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from paper import Cell, Experiment, Procedure
from paper.findings import read_results
from paper.plan import decide, tasks
from paper.protocols import search_beta
from paper.runner import RunOptions, deadline, gather_findings, run_experiments, run_missing, run_states, select
from paper.tables import entries
from reweigh.errors import DataError
from reweigh.lab.record import list_runs
from reweigh.lab.spec import Run, read_seeds

Make = Callable[..., Run]
WARM = Procedure("warm_start", (("iterations", 2),))


def table(*cells: Cell, **more: object) -> Experiment:
    return Experiment("toy", "A toy", "ours", cells, **more)  # type: ignore[arg-type]


def names(root: Path) -> set[str]:
    return {summary.folder.name for summary in list_runs(root) if summary.state == "done"}


def test_finished_runs_are_not_repeated(tiny: Make, tmp_path: Path) -> None:
    cce, gce = tiny(), tiny("GCE(0.7)")
    experiment = table(Cell("CCE", "a", cce), Cell("CCE again", "a", cce), Cell("GCE", "a", gce), seeds=(0, 1))
    updates = []
    for _ in range(2):
        ended = run_missing([experiment], tmp_path, watch=lambda *update: updates.append(update))
        assert not ended.failed
        assert not ended.stopped
    assert {run.folder_name() for _, _, run, _ in updates} == names(tmp_path)
    assert len(names(tmp_path)) == 4  # two runs, two seeds
    rows = [update.row for _, _, _, update in updates if update.row is not None]
    assert len(rows) == 8
    found = gather_findings(experiment, tmp_path, {})
    assert len(entries(experiment, (0, 1), found)) == 6


def test_a_stopped_call_resumes(tiny: Make, tmp_path: Path) -> None:
    experiment = table(Cell("CCE", "a", tiny()), Cell("GCE", "a", tiny("GCE(0.7)")))
    options = iter([False] * 12)
    ended = run_missing([experiment], tmp_path, should_stop=lambda: next(options, True))
    assert ended.stopped
    assert not ended.failed
    states = [summary.state for summary in list_runs(tmp_path)]
    assert sorted(states) == ["done", "resumable"]
    assert not run_missing([experiment], tmp_path).stopped
    other = tmp_path / "straight"
    run_missing([experiment], other)
    for name in names(other):
        assert (other / name / "rows.jsonl").read_bytes() == (tmp_path / name / "rows.jsonl").read_bytes()


def test_a_failed_run_does_not_stop_the_others(tiny: Make, tmp_path: Path) -> None:
    bad = tiny("NoSuchWeighting(1)")
    ended = run_missing([table(Cell("bad", "a", bad), Cell("CCE", "a", tiny()))], tmp_path)
    assert list(ended.failed) == [bad.folder_name()]
    assert "NoSuchWeighting" in ended.failed[bad.folder_name()]
    assert names(tmp_path) == {tiny().folder_name()}


def test_a_failed_run_releases_its_memory(tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive, held = list[bool](), list["weakref.ref[set[int]]"]()

    def execute(run: Run, root: Path, **options: object) -> Path:
        alive.extend(each() is not None for each in held)
        large = set[int]()
        held.append(weakref.ref(large))
        raise MemoryError("out of memory")

    monkeypatch.setattr("paper.runner.execute", execute)
    ended = run_missing([table(Cell("CCE", "a", tiny()), Cell("GCE", "a", tiny("GCE(0.7)")))], tmp_path)
    assert list(ended.failed.values()) == ["out of memory"] * 2
    assert alive == [False]


def test_known_runs_are_not_run(tiny: Make, measured: Callable, tmp_path: Path) -> None:
    known = measured(tiny(), final=0.5)
    experiment = table(Cell("CCE", "a", tiny()), Cell("GCE", "a", tiny("GCE(0.7)")))
    run_missing([experiment], tmp_path, known={known.name: known})
    assert names(tmp_path) == {tiny("GCE(0.7)").folder_name()}


def test_a_choice_is_scored_on_the_hold_out(tiny: Make, measured: Callable, tmp_path: Path) -> None:
    choice = search_beta(tiny, 0.5, (1, 8, 16), short=0.5)
    cell = Cell("DM", "a", choice)
    judged = zip(choice.options, (0.2, 0.6, 0.6), strict=True)
    scores = [measured(option.trial, validation=score) for option, score in judged]
    store = {each.name: each for each in scores}
    made = decide(choice, store)
    assert made is not None
    assert (made[0], made[1].weighting) == ("beta 8", "DM(0.5, 8)")  # of equals the first
    (task,) = tasks(table(cell), (3,), store)
    assert task.run == replace(made[1], seed=3)
    assert decide(choice, {scores[0].name: scores[0]}) is None

    run_missing([table(cell, seeds=(0, 1))], tmp_path)
    found = gather_findings(table(cell, seeds=(0, 1)), tmp_path, {})
    (first, second) = entries(table(cell), (0, 1), found)
    assert first.chosen == second.chosen
    assert first.chosen.startswith("beta ")
    assert len(names(tmp_path)) == 3 + 2


def test_trials_on_different_data_are_not_compared(tiny: Make, measured: Callable, tmp_path: Path) -> None:
    choice = search_beta(tiny, 0.5, (1, 8), short=0.5)
    found = [measured(option.trial, validation=0.5) for option in choice.options]
    found[1] = replace(found[1], header=replace(found[1].header, data_hash="f" * 64))
    known = {each.name: each for each in found}
    assert decide(choice, known) is None
    experiment = table(Cell("DM", "a", choice), Cell("CCE", "a", tiny()))
    ended = run_missing([experiment], tmp_path, known=known)
    assert names(tmp_path) == {tiny().folder_name()}  # only the run that does not depend on the choice
    (reason,) = set(ended.failed.values())
    assert set(ended.failed) == set(known)
    assert reason.startswith("the data changed between the trials of beta")
    assert "dddddddddddd (1), ffffffffffff (1)" in reason


def test_several_experiments_share_a_queue(tiny: Make, tmp_path: Path) -> None:
    """The runs of the second do not wait for the trials of the first."""
    first = replace(table(Cell("DM", "a", search_beta(tiny, 0.5, (1, 8), short=0.5))), name="first")
    second = replace(table(Cell("CCE", "a", tiny()), Cell("warm", "a", tiny(), procedure=WARM)), name="second")
    trained = list[Run]()
    options = RunOptions(tmp_path / "runs", save=tmp_path)
    both, ended = run_experiments(
        [first, second], options, watch=lambda number, count, run, update: trained.append(run)
    )
    assert not ended.failed
    order = [(run.weighting, run.iterations) for run in dict.fromkeys(trained)]
    assert order[:4] == [("CCE", 8), ("DM(0.5, 1)", 4), ("DM(0.5, 8)", 4), ("CCE", 2)]
    assert order[4][0] in ("DM(0.5, 1)", "DM(0.5, 8)")
    assert order[5:] == [("CCE", 8)]
    assert [len(saved.entries) for saved in both] == [1, 2]
    assert [len(read_results(tmp_path / f"{name}.json").entries) for name in ("first", "second")] == [1, 2]


@pytest.mark.slow
def test_parallel_runs_give_the_same(tiny: Make, tmp_path: Path) -> None:
    experiment = table(Cell("CCE", "a", tiny()), Cell("GCE", "a", tiny("GCE(0.7)")))
    run_missing([experiment], tmp_path / "one")
    run_missing([experiment], tmp_path / "two", jobs=2)
    for name in names(tmp_path / "one"):
        one, two = (tmp_path / side / name / "rows.jsonl" for side in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_runs_saved_before_they_were_scored_are_scored(
    tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paper.runner.retrieval_scores", lambda *_: {"mAP": 0.5, "CMC-1": 0.6})
    experiment = table(Cell("CCE", "a", tiny()), scored="retrieval", metrics=("mAP", "CMC-1"))
    options = RunOptions(tmp_path / "runs", save=tmp_path / "results")
    (saved,), ended = run_experiments([experiment], options, should_stop=lambda: bool(names(tmp_path / "runs")))
    assert ended.stopped
    assert "mAP" not in saved.entries[0].finding.metrics
    (saved,), ended = run_experiments([experiment], options)
    assert not ended.stopped
    assert saved.entries[0].finding.metrics["mAP"] == 0.5
    assert read_results(tmp_path / "results" / "toy.json").entries[0].finding.metrics["mAP"] == 0.5


def test_a_diverged_run_has_no_retrieval_scores(tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paper.runner.retrieval_scores", lambda *_: {"mAP": 0.5, "CMC-1": 0.6})
    cells = Cell("CCE", "a", tiny()), Cell("far too fast", "a", tiny(lr=1e30))
    (saved,), ended = run_experiments(
        [table(*cells, scored="retrieval", metrics=("mAP",))], RunOptions(tmp_path / "runs")
    )
    assert not ended.stopped
    assert not ended.failed
    assert ["mAP" in entry.finding.metrics for entry in saved.entries] == [True, False]


def test_a_failed_evaluation_does_not_stop_the_others(
    tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def score_run(run: Run, *_: object) -> dict[str, float]:
        if run.weighting == "CCE":
            raise DataError("0001C1T0001F001.jpg: cannot be read")
        return {"mAP": 0.5, "CMC-1": 0.6}

    monkeypatch.setattr("paper.runner.retrieval_scores", score_run)
    experiment = table(Cell("CCE", "a", tiny()), Cell("GCE", "a", tiny("GCE(0.7)")), scored="retrieval")
    (saved,), ended = run_experiments([experiment], RunOptions(tmp_path / "runs", save=tmp_path / "toy.json"))
    assert ended.failed == {tiny().folder_name(): "0001C1T0001F001.jpg: cannot be read"}
    assert ["mAP" in entry.finding.metrics for entry in saved.entries] == [False, True]
    assert len(read_results(tmp_path / "toy.json").entries) == 2


def test_results_are_saved_before_the_deadline(tiny: Make, tmp_path: Path) -> None:
    experiment = table(Cell("CCE", "a", tiny()), Cell("GCE", "b", tiny("GCE(0.7)")))
    options = RunOptions(tmp_path / "runs", only=("CCE",), save=tmp_path / "results")
    assert [step.state for step in run_states(experiment, options)] == ["missing"]
    (saved,), ended = run_experiments([experiment], options)
    assert not ended.failed
    assert [entry.row for entry in saved.entries] == ["CCE"]
    assert [step.state for step in run_states(experiment, options)] == ["done"]
    elsewhere = replace(options, runs=tmp_path / "elsewhere", only=())
    assert [step.state for step in run_states(experiment, elsewhere)] == ["done", "missing"]
    (saved,), ended = run_experiments([experiment], elsewhere, should_stop=deadline(1e-9))
    assert ended.stopped
    assert [entry.row for entry in saved.entries] == ["CCE"]
    assert not names(elsewhere.runs)


def test_the_first_phrase_comes_first_across_tables(tiny: Make, tmp_path: Path) -> None:
    cells = (Cell("CCE", "a", tiny()), Cell("MSE", "a", tiny("MSE")))
    one, other = table(*cells), replace(table(Cell("GCE", "b", tiny("GCE(0.7)"))), name="other")
    options = RunOptions(tmp_path / "runs", only=("MSE", "other b", "CCE"))
    started = list[str]()
    found, ended = run_experiments(
        [one, other], options, watch=lambda _number, _count, run, _update: started.append(run.weighting or "")
    )
    assert not ended.failed
    assert list(dict.fromkeys(started)) == ["MSE", "GCE(0.7)", "CCE"]
    assert [[entry.row for entry in saved.entries] for saved in found] == [["CCE", "MSE"], ["GCE"]]


def test_results_of_several_machines_are_merged(tiny: Make, tmp_path: Path) -> None:
    experiment = table(Cell("CCE", "a", tiny()), Cell("GCE", "a", tiny("GCE(0.7)")))
    for row in ("CCE", "GCE"):
        run_experiments([experiment], RunOptions(tmp_path / row, only=(row,), save=tmp_path / f"{row}.json"))
    here = RunOptions(tmp_path / "here", save=tmp_path / "CCE.json", add=(tmp_path / "GCE.json",))
    assert [step.state for step in run_states(experiment, here)] == ["done", "done"]
    assert [entry.row for entry in run_experiments([experiment], here)[0][0].entries] == ["CCE", "GCE"]
    assert not names(here.runs)
    assert [entry.row for entry in read_results(tmp_path / "CCE.json").entries] == ["CCE", "GCE"]


def test_results_saved_meanwhile_are_kept(tiny: Make, tmp_path: Path) -> None:
    experiment = table(Cell("CCE", "a", tiny()), Cell("GCE", "a", tiny("GCE(0.7)")))
    one, other = (RunOptions(tmp_path / row, only=(row,), save=tmp_path / "toy.json") for row in ("CCE", "GCE"))
    started = list[bool]()

    def tell(*update: object) -> None:
        if not started:
            started.append(True)
            run_experiments([experiment], other)

    run_experiments([experiment], one, watch=tell)
    assert [entry.row for entry in read_results(tmp_path / "toy.json").entries] == ["CCE", "GCE"]


def test_initial_weights_distinguish_runs(tiny: Make, tmp_path: Path) -> None:
    experiment = table(Cell("CCE", "a", tiny()))
    names = set()
    for content in (b"one", b"two"):
        (tmp_path / "weights").write_bytes(content)
        options = RunOptions(tmp_path, fields={"init_file": str(tmp_path / "weights")})
        names.add(options.apply(experiment).cells[0].runs[0].folder_name())
    assert len(names | {tiny().folder_name()}) == 3
    with pytest.raises(DataError, match="none: cannot be read"):
        RunOptions(tmp_path, fields={"init_file": str(tmp_path / "none")}).apply(experiment)


def test_bad_options_are_refused(tmp_path: Path) -> None:
    for wrong in ({"jobs": 0}, {"minutes": 0.0}, {"quick": True, "save": tmp_path}):
        with pytest.raises(ValueError, match=r"expected|leave out"):
            RunOptions(tmp_path, **wrong)
    several = [table(Cell("CCE", "a")), replace(table(Cell("CCE", "a")), name="other")]
    with pytest.raises(ValueError, match="no row, column"):
        select(several, RunOptions(tmp_path, only=("nothing",)))
    with pytest.raises(ValueError, match="only is 'nothing'"):
        select(several, RunOptions(tmp_path, only=("CCE", "nothing")))
    with pytest.raises(ValueError, match="one file, but there are toy, other"):
        select(several, RunOptions(tmp_path, save=tmp_path / "all.json"))
    for text in ("", "1;2", "-1"):
        with pytest.raises(ValueError, match="seeds are"):
            read_seeds(text)


def test_a_run_counts_in_every_table_that_has_it(tiny: Make, tmp_path: Path) -> None:
    first, cce, gce = tmp_path / "results", Cell("CCE", "a", tiny()), Cell("GCE", "a", tiny("GCE(0.7)"))
    run_experiments([table(cce)], RunOptions(tmp_path / "runs", save=first))
    other = replace(table(cce, gce), name="other")
    (first / "notes.json").write_text("[]")
    same_folder = RunOptions(tmp_path / "elsewhere", save=first)
    assert [step.state for step in run_states(other, same_folder)] == ["done", "missing"]
    added = RunOptions(tmp_path / "elsewhere", add=(first / "toy.json",))
    assert select([other], added) == [other]
    assert [step.state for step in run_states(other, added)] == ["done", "missing"]
    (saved,), _ = run_experiments([other], added)
    assert [entry.row for entry in saved.entries] == ["CCE", "GCE"]
    assert names(tmp_path / "elsewhere") == {tiny("GCE(0.7)").folder_name()}
    with pytest.raises(ValueError, match="results of toy; none of its runs is part of other"):
        select([replace(table(gce), name="other")], added)
