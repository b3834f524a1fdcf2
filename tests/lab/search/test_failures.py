"""Failures of data, disk, memory and database, and data without a test set."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import sqlalchemy
import torch
from optuna.storages import RDBStorage
from typer.testing import CliRunner

from reweigh.errors import DataError, MissingExtraError
from reweigh.lab.cli.app import app
from reweigh.lab.record import read_header
from reweigh.lab.search import plan_search, search
from reweigh.lab.search.page import page
from reweigh.lab.search.plan import Plan
from reweigh.lab.search.slurm import options
from reweigh.lab.search.storage import database_errors, open_storage, sqlite_url
from reweigh.lab.search.study import join_study, reopen, slots
from reweigh.lab.search.worker import Call, work
from reweigh.lab.spec import Run

Make = Callable[..., tuple[optuna.Study, Plan]]
QUICK: dict[str, Any] = {"beat": 0.5, "grace": 60.0}
SMALL: dict[str, Any] = {"net": "linear", "iterations": 4, "batch_size": 16, "evaluate_every": 2}
GRID = "DM(lam={0, 0.5}, beta=2)"
CPU = {"device": "cpu"}
NO_MEMORY = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000 bytes."


def by_rate(run: Run, call: Call) -> float:
    return run.lr


def full(storage: RDBStorage) -> RDBStorage:
    """The storage on a disk on which nothing can grow."""
    sqlalchemy.event.listen(storage.engine, "connect", lambda raw, _: raw.execute("PRAGMA max_page_count = 1"))
    storage.engine.dispose()
    return storage


def write_table(path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 2))
    path.write_text("\n".join(["a,b,label", *(f"{a},{b},{int(a > 0)}" for a, b in rows)]) + "\n")


def test_data_that_changed_during_a_search_are_refused(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    write_table(table)

    def go(**more: Any) -> None:
        plan = plan_search({"data": str(table), **SMALL, "weighting": "CCE"}, "lr=0.01..0.3:log", prune=False, **more)
        search(plan, tmp_path / "runs", where=CPU, **QUICK)

    go(trials=1, seeds=())
    table.write_text(table.read_text() + "0.5,0.5,1\n")
    for more in ({"trials": 1, "seeds": ()}, {"trials": 2, "seeds": ()}, {"trials": 1, "seeds": (0,)}):
        with pytest.raises(DataError, match=r"mine.csv has changed since the search .* began"):
            go(**more)


def test_given_labels_that_changed_during_a_search_are_refused(tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    given = (np.arange(1200) % 10).tolist()
    fields = {"data": "digits", **SMALL, "weighting": "CCE", "noise": f"given({str(labels)!r})"}

    def go(**more: Any) -> None:
        labels.write_text("\n".join(map(str, given)))
        search(plan_search(fields, "lr=0.01..0.3:log", prune=False, **more), tmp_path / "runs", where=CPU, **QUICK)

    go(trials=1, seeds=())
    go(trials=2, seeds=())
    given.reverse()
    for more in ({"trials": 2, "seeds": ()}, {"trials": 3, "seeds": ()}, {"trials": 2, "seeds": (0,)}):
        with pytest.raises(DataError, match=r"trained on other labels than given\(.* gives now"):
            go(**more)


def test_unverified_labels_are_not_trusted(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    write_table(table)
    plan = plan_search({"data": str(table), **SMALL}, GRID, trusted="test", seeds=())
    with pytest.raises(DataError, match=r"mine.csv has no test set"):
        search(plan, tmp_path / "runs", where=CPU, **QUICK)


def test_a_released_lock_is_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reweigh.lab.record.files import LockedError
    from reweigh.lab.run import execute
    from reweigh.lab.search import objective

    asked: list[Run] = []

    def held_at_first(run: Run, root: Path, **how: Any) -> Path:
        asked.append(run)
        if len(asked) == 1:
            raise LockedError(errno.EAGAIN, "is being written by process 1")
        return execute(run, root, **how)

    monkeypatch.setattr(objective, "execute", held_at_first)
    monkeypatch.setattr(objective, "POLL", 0.0)
    search(plan_search({"data": "digits", **SMALL}, GRID, seeds=()), tmp_path, where=CPU, **QUICK)
    assert len(asked) == 3


@pytest.mark.parametrize(
    "error",
    [
        DataError("x.npz: no such file"),
        OSError(errno.ENOSPC, "No space left on device"),
        MissingExtraError("pillow is not installed"),
    ],
)
def test_a_trial_with_an_environment_error_is_released(make: Make, error: Exception) -> None:
    study, plan = make(trials=3)
    tried: list[float] = []

    def in_trouble(run: Run, call: Call) -> float:
        tried.append(run.lr)
        if len(tried) == 2:
            raise error
        return run.lr

    with pytest.raises(type(error)) as raised:
        work(study, plan, in_trouble, **QUICK)
    assert raised.value is error
    assert [slot.is_finished for slot in slots(study)] == [True, False, False]
    assert work(study, plan, by_rate, **QUICK) == 2
    found = slots(study)
    assert found[1].trial is not None
    assert found[1].trial.value == tried[1], "another point was tried"
    assert [slot.lost for slot in found] == [0, 0, 0], "nobody died"


@pytest.mark.parametrize("error", [MemoryError("too large"), torch.OutOfMemoryError("CUDA"), RuntimeError(NO_MEMORY)])
def test_out_of_memory_fails_one_trial_until_the_next_call(make: Make, error: Exception) -> None:
    study, plan = make("lr={0.1, 0.2, 0.3}", trials=None)

    def large(run: Run, call: Call) -> float:
        if run.lr == 0.1:
            raise error
        if run.lr == 0.2:
            raise ValueError("a setting that cannot be")
        return run.lr

    assert work(study, plan, large, **QUICK) == 3
    assert [slot.error is None for slot in slots(study)] == [False, False, True]
    reopen(study, plan)
    assert work(study, plan, by_rate, **QUICK) == 1, "only what memory may help"
    assert [slot.error for slot in slots(study)] == [None, "ValueError: a setting that cannot be", None]


def test_a_search_retries_trials_that_ran_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_search({**SMALL, "data": "digits"}, GRID, seeds=())

    def short(*_: object, **__: object) -> Path:
        raise MemoryError("for a moment")

    with monkeypatch.context() as patch:
        patch.setattr("reweigh.lab.search.objective.execute", short)
        with pytest.raises(ValueError, match="none of the 2 trials finished: MemoryError: for a moment"):
            search(plan, tmp_path, where=CPU)
    assert {trial.state for trial in search(plan, tmp_path, where=CPU).trials} == {"done"}


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_search_resumes_once_missing_data_exist(tmp_path: Path, workers: int) -> None:
    plan = plan_search({**SMALL, "data": str(tmp_path / "train.csv")}, GRID, seeds=())
    words = options({**SMALL, **CPU, "data": tmp_path / "train.csv", "space": GRID, "seeds": 0, "workers": workers})
    refused = CliRunner().invoke(app, ["search", *words, "--runs", str(tmp_path / "runs")])
    assert refused.exit_code == 3, refused.output
    assert "train.csv" in refused.stderr
    assert "Traceback" not in refused.stderr
    write_table(tmp_path / "train.csv")
    assert {trial.state for trial in search(plan, tmp_path / "runs", where=CPU).trials} == {"done"}


def test_a_full_disk_under_the_database_is_reported_and_loses_nothing(make: Make, tmp_path: Path) -> None:
    study, plan = make("lr={0.1, 0.2}", trials=None)
    url = sqlite_url(tmp_path / "study.db")

    def learn(run: Run, call: Call) -> float:
        for step in range(5000):
            call.report(step, run.lr)
        return run.lr

    joined, _ = join_study(full(open_storage(url)), study.study_name)
    with pytest.raises(OSError, match=r"study\.db cannot be used: database or disk is full"), database_errors(url):
        work(joined, plan, learn, **QUICK)
    assert not any(slot.error for slot in slots(study))
    assert work(study, plan, by_rate, beat=0.1, grace=0.5) == 2


def test_the_command_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reweigh.lab.search.storage.open_storage", lambda url: full(open_storage(url)))
    space = f"DM(lam={{{', '.join(str(i / 100) for i in range(100))}}}, beta=2)"
    words = options({**SMALL, **CPU, "data": "digits", "space": space, "runs": tmp_path})
    ended = CliRunner().invoke(app, ["search", *words])
    assert ended.exit_code == 1
    assert "study.db cannot be used: database or disk is full" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_data_without_a_test_set(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 3)).astype(np.float32), np.arange(80) % 2
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x[:0], y_test=y[:0])
    words = options({**SMALL, **CPU, "data": tmp_path / "own.npz", "space": GRID, "seeds": 2, "runs": tmp_path})
    done = CliRunner().invoke(app, ["search", *words])
    assert done.exit_code == 0, done.output
    assert "on all training data: trained with seeds 0, 1; not evaluated, because there is no test set" in done.output
    told = json.loads(CliRunner().invoke(app, ["search", *words, "--json"]).stdout)
    assert (told["final"]["mean"], told["final"]["deviation"]) == (None, None)
    finals = told["final"]["seeds"]
    assert [(final["seed"], final["accuracy"], final["best"]) for final in finals] == [(0, None, None), (1, None, None)]
    assert [read_header(tmp_path / final["run"]).examples for final in finals] == [80, 80]
    outcome = search(plan_search({**SMALL, "data": str(tmp_path / "own.npz")}, GRID, seeds=(0, 1)), tmp_path, where=CPU)
    assert outcome.accuracy is None
    assert "2 seeds; the data have no test set" in page(outcome)


def test_the_trials_are_written_before_the_final_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reweigh.lab.run import execute

    def no_final(run: Run, root: Path, **rest: Any) -> Path:
        if not run.validation:
            raise ValueError("too much")
        return execute(run, root, **rest)

    monkeypatch.setattr("reweigh.lab.search.objective.execute", no_final)
    plan = plan_search({**SMALL, "data": "digits"}, GRID, seeds=(0,))
    with pytest.raises(ValueError, match="the best setting failed on all training data: ValueError: too much"):
        search(plan, tmp_path, where=CPU)
    assert json.loads((tmp_path / plan.name / "search.json").read_text())["final"] is None
    assert (tmp_path / plan.name / "trials.csv").exists()


def test_a_setting_whose_training_diverged_is_never_the_best(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(100, 3)).astype(np.float32), (np.arange(100) % 10 == 9).astype(int)  # 0 is a good guess
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    fields = {**SMALL, "net": "mlp-8", "data": str(tmp_path / "own.npz"), "weighting": "CCE"}
    outcome = search(plan_search(fields, "lr={1e30, 0.001}", seeds=()), tmp_path / "runs", where=CPU)
    assert [trial.state for trial in outcome.trials] == ["failed", "done"]
    assert outcome.trials[0].error == "ValueError: training diverged at iteration 2"
    assert outcome.best == outcome.trials[1]
    with pytest.raises(ValueError, match="none of the 2 trials finished: ValueError: training diverged at iteration"):
        search(plan_search(fields, "lr={1e30, 1e31}", seeds=()), tmp_path / "runs", where=CPU)


def test_a_database_appears_with_all_of_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill within the creation must leave no tables without their indices, which Optuna would not add."""
    path = tmp_path / "study.db"

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("reweigh.lab.search.storage.os.link", killed)
        with pytest.raises(KeyboardInterrupt):
            open_storage(sqlite_url(path))
    assert not list(tmp_path.iterdir())
    study = optuna.create_study(storage=open_storage(sqlite_url(path)), study_name="a")
    assert optuna.load_study(study_name="a", storage=open_storage(sqlite_url(path)))._study_id == study._study_id
    with monkeypatch.context() as patch:  # a file system without links
        patch.setattr("reweigh.lab.search.storage.os.link", os_error)
        open_storage(sqlite_url(tmp_path / "other.db")).engine.dispose()
    assert (tmp_path / "other.db").exists()


def os_error(*_: object) -> None:
    raise OSError(errno.EPERM, "not permitted")
