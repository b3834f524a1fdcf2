"""Searches over small runs: protocol, records, invalid plans, trusted sets, page, processes."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reweigh.errors import DataError
from reweigh.lab.data.dataset import Dataset, Part
from reweigh.lab.record import list_runs, read_header, read_rows, summarise
from reweigh.lab.report.figures import density_of_setting
from reweigh.lab.run import execute
from reweigh.lab.search import Outcome, plan_search, search
from reweigh.lab.search.checks import overlap
from reweigh.lab.search.objective import run_objective
from reweigh.lab.search.page import page
from reweigh.lab.search.plan import Plan
from reweigh.lab.search.search import SearchStopped
from reweigh.lab.search.storage import open_storage
from reweigh.lab.search.study import join_study, slots
from reweigh.lab.search.worker import Call, StoppedError
from reweigh.lab.spec import Run, parse

FIELDS: dict[str, Any] = {
    "data": "digits",
    "net": "mlp-8",
    "noise": "symmetric",
    "rate": 0.4,
    "iterations": 20,
    "batch_size": 32,
    "evaluate_every": 10,
}
GRID = "DM(lam={0, 0.5}, beta=2)"
CPU = {"device": "cpu"}


def find(plan: Plan, root: Path) -> Outcome:
    return search(plan, root, where=CPU, beat=1)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    root = tmp_path_factory.mktemp("runs")
    return root, find(plan_search(FIELDS, GRID, seeds=(0, 1)), root)


def test_the_papers_protocol(found: tuple[Path, Outcome]) -> None:
    root, outcome = found
    assert outcome.plan.judged == "clean: 20 % of the training part, with its true labels"
    runs = {summary.folder.name: summary for summary in list_runs(root)}
    assert len(runs) == 4
    assert {summary.state for summary in runs.values()} == {"done"}
    for trial in outcome.trials:
        header = read_header(root / str(trial.run))
        assert (header.run.validation, header.run.validation_labels, header.examples) == (0.2, "clean", 960)
        assert read_rows(root / str(trial.run))[-1]["validation_accuracy"] == trial.score
    assert outcome.best is not None
    assert outcome.best.score == max(trial.score or 0 for trial in outcome.trials)
    for final in outcome.finals:
        header = read_header(root / final.run)
        assert (header.run.validation, header.run.seed, header.examples) == (0.0, final.seed, 1200)
        assert header.run.weighting == outcome.setting(outcome.best)["weighting"]
    mean, deviation = outcome.accuracy or (0, 0)
    assert mean == pytest.approx(np.mean([final.accuracy for final in outcome.finals]))
    assert deviation == pytest.approx(np.std([final.accuracy for final in outcome.finals], ddof=1))
    assert [final.seed for final in outcome.finals] == [0, 1]


def test_grids_are_reproducible_to_the_byte(found: tuple[Path, Outcome], tmp_path: Path) -> None:
    root, outcome = found
    again = find(replace(outcome.plan, seeds=()), tmp_path)
    table = (tmp_path / again.name / "trials.csv").read_bytes()
    assert table == (root / outcome.name / "trials.csv").read_bytes()
    assert table.startswith(b"trial,state,score,step,lam,run\n0,done,")
    for trial in again.trials:
        one, other = tmp_path / str(trial.run), root / str(trial.run)
        for name in ("rows.jsonl", "run.json", "model/model.safetensors"):
            assert (one / name).read_bytes() == (other / name).read_bytes()


def test_nothing_is_computed_twice(found: tuple[Path, Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    root, outcome = found

    def refuse(*_: object, **__: object) -> Path:
        raise AssertionError("a finished run was begun again")

    monkeypatch.setattr("reweigh.lab.search.objective.execute", refuse)
    assert find(outcome.plan, root) == outcome
    # another search, another study, the same runs
    fresh = search(replace(outcome.plan, seed=5), root, where=CPU)
    assert [trial.score for trial in fresh.trials] == [trial.score for trial in outcome.trials]


def test_the_record_of_a_search(found: tuple[Path, Outcome]) -> None:
    root, outcome = found
    told = json.loads((root / outcome.name / "search.json").read_text())
    assert told["validation"] == outcome.plan.judged
    assert told["best"]["setting"] == outcome.setting(outcome.best) if outcome.best else False
    assert [trial["state"] for trial in told["trials"]] == ["done", "done"]
    assert told["final"]["mean"] == (outcome.accuracy or [None])[0]


class Told(Call):
    """A call that is told what to say."""

    def __init__(self, stop_at: int | None) -> None:
        self.reports: list[int] = []
        self._stop_at = stop_at

    def report(self, step: int, score: float) -> None:
        self.reports.append(step)

    def should_stop(self) -> bool:
        return self._stop_at is not None and self._stop_at in self.reports


def test_a_pruned_run_stays_resumable_and_its_rows_count(tmp_path: Path) -> None:
    run = Run.from_mapping({**FIELDS, "weighting": "CCE", "validation": 0.2, **CPU})
    objective = run_objective(tmp_path, "validation_accuracy")
    with pytest.raises(StoppedError):
        objective(run, Told(stop_at=10))
    folder = tmp_path / run.folder_name()
    assert summarise(folder).state == "resumable"
    again = Told(stop_at=None)
    score = objective(run, again)
    assert again.reports == [10], "the row from before, once; the last one is the result"
    assert score == read_rows(folder)[-1]["validation_accuracy"]


def test_checkpoints_that_a_kill_left_with_a_result_are_removed(tmp_path: Path) -> None:
    run = Run.from_mapping({**FIELDS, "weighting": "CCE", "validation": 0.2, **CPU})
    objective = run_objective(tmp_path, "validation_accuracy")
    score = objective(run, Told(None))
    left = [tmp_path / run.folder_name() / name for name in ("checkpoint.pt", "checkpoint.previous.pt")]
    for path in left:
        path.write_bytes(b"of a process that was killed")
    assert objective(run, Told(None)) == score
    assert not any(path.exists() for path in left)


def test_a_locked_run_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reweigh.lab.record.files import Lock

    run = Run.from_mapping({**FIELDS, "weighting": "MAE", "validation": 0.2, **CPU})
    folder = tmp_path / run.folder_name()
    folder.mkdir()
    lock = Lock(folder)
    monkeypatch.setattr("reweigh.lab.search.objective.POLL", 0.05)
    threading.Timer(0.3, lock.close).start()
    assert 0 < run_objective(tmp_path, "validation_accuracy")(run, Told(None)) < 1


def test_a_stopped_search_resumes(tmp_path: Path) -> None:
    plan = plan_search(FIELDS, "DM(lam=0..1, beta=2)", trials=2, seeds=())
    asked = [0]

    def after_a_while() -> bool:
        asked[0] += 1
        return asked[0] > 30

    with pytest.raises(SearchStopped, match="same command"):
        search(plan, tmp_path, where=CPU, should_stop=after_a_while)
    outcome = find(plan, tmp_path)
    assert {trial.state for trial in outcome.trials} == {"done"}


@pytest.mark.parametrize(
    ("more", "judged"),
    [
        ({"validation_labels": "noisy", "validation": 0.1}, "noisy: 10 % of the training part"),
        ({"noise": None, "rate": None}, "as given: 20 % of the training part, with labels that nobody"),
        ({"noise": "given('a.npy', truth=False)", "rate": None}, "as given: 20 % of the training part"),
    ],
)
def test_the_plan_describes_its_validation_set(more: dict[str, Any], judged: str) -> None:
    plan = plan_search({**FIELDS, **more}, GRID)
    assert plan.judged.startswith(judged)
    assert plan.run(next(plan.space.points())).validation_labels == more.get("validation_labels", "clean")


def test_a_plan_keeps_unhashed_fields(tmp_path: Path) -> None:
    here = {"data_root": "here", "device": "cpu", "workers": 3, "init_file": "weights.pt"}
    fields = {**FIELDS, "init_hash": "0123456789ab"}
    plan = plan_search({**fields, **here}, GRID)
    point = next(plan.space.points())
    for each, chosen in ((plan, point), (plan.final(point), {"seed": 0})):
        run = each.run(chosen, {"data_root": "there"})
        assert (run.data_root, run.device, run.workers, run.init_file) == ("there", "cpu", 3, "weights.pt")
    other = plan_search({**fields, **here, "device": "cuda"}, GRID)
    assert (other, other.name) == (plan, plan.name)
    plan = plan_search({**FIELDS, "data": "cifar10", "data_root": str(tmp_path / "here"), **CPU}, GRID, seeds=())
    for where, name in ((None, "here"), ({"data_root": str(tmp_path / "there")}, "there")):
        with pytest.raises(DataError, match=str(tmp_path / name)):
            search(plan, tmp_path / "runs", where=where, beat=1)


@pytest.mark.parametrize(
    ("fields", "space", "arguments", "about"),
    [
        ({"weighting": "CCE"}, GRID, {}, "about DM, and weighting is passed"),
        ({"lr": 0.1}, f"{GRID}, lr={{0.1, 1}}", {}, "lr is both passed and in the space"),
        ({}, GRID, {"trials": 5}, "a grid, which runs all its points"),
        ({}, "DM(lam=0..1, beta=2)", {"trials": 0}, "expected at least 1"),
        ({}, "DM(lam=-1..1, beta=2)", {}, "an invalid run: DM: lam"),
        ({}, "DM(lam=0..1)", {}, "an invalid run: .*beta"),
        ({}, "DM(lam=0..1, beta=2), momentum=0..1", {}, "momentum is 1"),
        ({}, f"{GRID}, iterations={{10, 20}}", {}, "would not be comparable"),
        ({"validation": 0.0}, GRID, {}, "needs a validation or a trusted set"),
        ({"validation": 0.1}, GRID, {"trusted": "x.csv"}, "and a trusted set are both passed"),
        ({}, "lr={0.1, 1}", {}, "exactly one of weighting, loss and method"),
        ({}, "CoTeaching(forget={0.2, 0.4})", {}, "has no argument 'forget'; did you mean 'forget_rate'"),
        ({}, "CoTeaching(warm_up={1, 2})", {}, "CoTeaching needs forget_rate"),
        ({}, "NCE_RCE(alhpa={1, 2})", {}, "did you mean 'alpha'"),
        ({}, "ActiveBias(form={variance, closeness})", {}, "not variance; write form='variance' for a text"),
    ],
)
def test_bad_plans_are_refused(fields: dict[str, Any], space: str, arguments: dict[str, Any], about: str) -> None:
    with pytest.raises(ValueError, match=about):
        plan_search({**FIELDS, **fields}, space, **arguments)


def write_table(path: Path, rows: np.ndarray[Any, Any]) -> None:
    lines = ["a,b,label", *(f"{a},{b},{int(a > 0)}" for a, b in rows)]
    path.write_text("\n".join(lines) + "\n")


def test_a_trusted_set(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(90, 2))
    write_table(tmp_path / "train.csv", rows[:60])
    write_table(tmp_path / "trusted.csv", rows[60:])
    fields = {"data": str(tmp_path / "train.csv"), "net": "linear", "iterations": 10, "batch_size": 16}
    trusted = str(tmp_path / "trusted.csv")
    outcome = find(plan_search(fields, "DM(lam=0, beta={0, 2})", trusted=trusted, seeds=(0,)), tmp_path / "runs")
    assert outcome.plan.judged == f"trusted: {trusted}"
    header = read_header(tmp_path / "runs" / str(outcome.trials[0].run))
    assert (header.run.test_data, header.examples) == (trusted, 60)
    final = read_header(tmp_path / "runs" / outcome.finals[0].run)
    assert (final.run.test_data, final.examples) == (trusted, 60), "nothing is set aside"
    assert outcome.holdout == "trusted set", "which chose the setting, so that it is no test"
    write_table(tmp_path / "test.csv", rows[:20] + 9)
    fields["test_data"] = str(tmp_path / "test.csv")
    outcome = find(plan_search(fields, "DM(lam=0, beta={0, 2})", trusted=trusted, seeds=(0,)), tmp_path / "runs")
    final = read_header(tmp_path / "runs" / outcome.finals[0].run)
    assert (final.run.test_data, final.examples) == (fields["test_data"], 60)
    assert outcome.holdout == "test"
    del fields["test_data"]
    write_table(tmp_path / "trusted.csv", rows[55:])
    with pytest.raises(DataError, match=r"5 of its 35 examples are also training examples \(number 1 is training"):
        find(plan_search(fields, "DM(lam=0, beta={0, 2})", trusted=trusted), tmp_path / "runs")


def test_overlap_in_texts_and_images() -> None:
    for inputs in (("a", "bb", "c", "d"), np.arange(4 * 48, dtype=np.uint8).reshape(4, 4, 4, 3)):
        whole = Part(inputs, np.array([0, 1, 0, 1]))
        data = Dataset("toy", whole.take([0, 1, 2]), whole.take([3, 2, 0]), ("x", "y"))
        assert overlap(data) == [(2, 1), (0, 2)]


def test_the_page_is_self_contained(found: tuple[Path, Outcome]) -> None:
    _, outcome = found
    told = page(outcome, density_of_setting(parse("DM(0.5, 8)")))
    assert "default-src 'none'" in told
    assert "clean: 20 %" in told
    assert "emphasis density" in told
    for outside in ("http://", "https://", "src=", "@import"):
        assert outside not in told.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.slow
def test_two_processes_one_of_which_is_killed(tmp_path: Path) -> None:
    import os
    import signal
    import subprocess

    plan = plan_search({**FIELDS, "iterations": 60}, "DM(lam={0, 0.5, 1}, beta={2, 8})", seeds=(0,))
    killed: list[int] = []

    def watch(stage: str, found: object) -> None:
        children = subprocess.run(
            ["pgrep", "-P", f"{os.getpid()}", "-f", "reweigh.lab.search.serve"], capture_output=True
        )
        for pid in children.stdout.split()[:1]:
            study, _ = join_study(open_storage(f"sqlite:///{tmp_path}/{plan.name}/study.db"), plan.name)
            begun = any(slot.trial is not None and slot.trial.state.name == "RUNNING" for slot in slots(study))
            if begun and not killed:
                killed.append(int(pid))
                os.kill(int(pid), signal.SIGKILL)

    outcome = search(plan, tmp_path, workers=2, where=CPU, watch=watch, beat=0.5, grace=5)
    assert killed
    assert [trial.state for trial in outcome.trials] == ["done"] * 6
    assert len(outcome.finals) == 1
    assert execute(outcome.plan.run(outcome.trials[0].point or {}, CPU), tmp_path).name == outcome.trials[0].run
