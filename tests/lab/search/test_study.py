"""Slots are done exactly once, retried after a worker died, and never lost; storage."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy
from optuna.trial import TrialState

from reweigh.lab.search.plan import Plan, plan_search
from reweigh.lab.search.storage import hide_password, open_storage, sqlite_url
from reweigh.lab.search.study import ATTEMPTS, WINDOW, Keeper, enqueue, join_study, open_study, slots, suggest
from reweigh.lab.search.worker import Call, StoppedError, claim, work
from reweigh.lab.spec import Run

Make = Callable[..., tuple[optuna.Study, Plan]]
QUICK: dict[str, Any] = {"beat": 0.5, "grace": 60.0}


def by_rate(run: Run, call: Call) -> float:
    return run.lr


def scores(study: optuna.Study) -> list[float | None]:
    return [slot.trial.value if slot.trial is not None else None for slot in slots(study)]


def test_a_worker_finishes_all_slots_in_order(make: Make) -> None:
    study, plan = make(trials=2 * WINDOW + 1)
    assert work(study, plan, by_rate, **QUICK) == 2 * WINDOW + 1
    trials = study.get_trials()
    assert [trial.user_attrs["slot"] for trial in trials] == list(range(2 * WINDOW + 1))
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    assert work(study, plan, by_rate, **QUICK) == 0, "there is nothing left"


def test_one_worker_gives_the_same_study_every_time(make: Make, tmp_path: Path) -> None:
    study, plan = make(trials=14)  # past the random beginning of TPE
    work(study, plan, by_rate, **QUICK)
    again = open_study(plan, open_storage(sqlite_url(tmp_path / "again.db")))
    work(again, plan, by_rate, most=9, **QUICK)
    joined, same = join_study(open_storage(sqlite_url(tmp_path / "again.db")), again.study_name)
    assert same == plan
    work(joined, same, by_rate, **QUICK)
    assert scores(joined) == scores(study)


def test_many_workers_do_every_slot_once(make: Make, tmp_path: Path) -> None:
    _, plan = make(trials=20)
    done: list[int] = []

    def one() -> None:
        study, _ = join_study(open_storage(sqlite_url(tmp_path / "study.db")), plan.name)
        done.append(work(study, plan, by_rate, **QUICK))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    study, _ = join_study(open_storage(sqlite_url(tmp_path / "study.db")), plan.name)
    finished = [trial for trial in study.get_trials() if trial.state == TrialState.COMPLETE]
    assert Counter(trial.user_attrs["slot"] for trial in finished) == Counter(range(20))
    assert sum(done) == 20


def test_a_dead_workers_trial_is_retried_with_its_point(make: Make) -> None:
    study, plan = make()
    now = [0.0]
    keeper = Keeper(plan, grace=10, clock=lambda: now[0])
    keeper.tend(study)
    dead = claim(study)  # and never heard of again, not even once
    assert dead is not None
    rate = dead.suggest_float("lr", 0.01, 1, log=True)
    for now[0] in (0.0, 9.0, 18.9):
        dead.set_user_attr("beat", int(now[0] > 0))  # one beat only
        assert not slots(study)[0].lost
        keeper.tend(study)
    now[0] = 30.0
    assert keeper.tend(study)[0].lost == 1
    work(study, plan, by_rate, **QUICK)
    assert scores(study)[0] == pytest.approx(rate, rel=1e-3)
    assert all(slot.is_finished for slot in slots(study))


def test_a_worker_that_dies_between_two_parameters_changes_nothing(make: Make, tmp_path: Path) -> None:
    study, plan = make("lr=0.01..1:log, momentum=0.5..0.9", trials=1)
    work(study, plan, by_rate, **QUICK)
    killed = open_study(plan, open_storage(sqlite_url(tmp_path / "killed.db")))
    now = [0.0]
    keeper = Keeper(plan, grace=10, clock=lambda: now[0])
    keeper.tend(killed)
    dead = claim(killed)
    assert dead is not None
    dead.suggest_float("lr", 0.01, 1, log=True)
    for now[0] in (0.0, 30.0):
        keeper.tend(killed)
    work(killed, plan, by_rate, **QUICK)
    points = [found.get_trials(states=(TrialState.COMPLETE,))[0].params for found in (study, killed)]
    assert points[0] == points[1]


def test_a_slot_that_kills_its_workers_fails(make: Make) -> None:
    study, plan = make(trials=1)
    now = [0.0]
    keeper = Keeper(plan, grace=1, clock=lambda: now[0])
    for _ in range(ATTEMPTS):
        keeper.tend(study)
        assert claim(study) is not None
        keeper.tend(study)
        now[0] += 2
    (slot,) = keeper.tend(study)
    assert slot.is_finished
    assert slot.error == f"{ATTEMPTS} workers died in this trial"


def test_a_slot_opened_twice_is_done_once(make: Make) -> None:
    study, plan = make(trials=2)
    for _ in range(2):
        for slot in slots(study):
            enqueue(study, slot, plan)
    assert work(study, plan, by_rate, **QUICK) == 2
    states = Counter(trial.state for trial in study.get_trials())
    assert states == {TrialState.COMPLETE: 2, TrialState.FAIL: 2}
    assert [slot.lost for slot in slots(study)] == [0, 0], "nobody died"


def test_a_dead_worker_in_a_finished_slot_is_detected(make: Make) -> None:
    study, plan = make(trials=1)
    Keeper(plan, grace=60).tend(study)
    enqueue(study, slots(study)[0], plan)  # two open trials in one slot, as a race makes them
    first, second = study.ask(), study.ask()
    study.tell(first, 0.5)
    assert slots(study)[0].is_finished
    assert work(study, plan, by_rate, beat=0.1, grace=0.5) == 0
    assert study.get_trials()[second.number].state == TrialState.FAIL, "it was left running"


def test_a_worker_that_was_taken_for_dead_notices(make: Make) -> None:
    study, plan = make(trials=1)

    def slow(run: Run, call: Call) -> float:
        study.tell(0, state=TrialState.FAIL)  # as another worker's keeper would
        while not call.should_stop():
            pass
        raise StoppedError

    assert work(study, plan, slow, most=1, should_leave=lambda: len(study.get_trials()) > 1, **QUICK) == 0
    assert work(study, plan, by_rate, **QUICK) == 1


def test_a_leaving_worker_releases_its_trial(make: Make) -> None:
    study, plan = make(trials=3)
    leaving: list[float] = []

    def left(run: Run, call: Call) -> float:
        leaving.append(run.lr)
        assert call.should_stop()
        raise StoppedError

    work(study, plan, left, should_leave=lambda: bool(leaving), **QUICK)
    assert work(study, plan, by_rate, **QUICK) == 3
    assert scores(study)[0] == leaving[0]
    assert [slot.lost for slot in slots(study)] == [0, 0, 0]


def test_an_error_fails_its_slot(make: Make) -> None:
    study, plan = make("lr={0.1, 0.2}", trials=None)

    def broken(run: Run, call: Call) -> float:
        if run.lr == 0.1:
            raise MemoryError("too large")
        return 1.0

    assert work(study, plan, broken, **QUICK) == 2
    assert [slot.error for slot in slots(study)] == ["MemoryError: too large", None]


def learn(run: Run, call: Call) -> float:
    """The score of a run grows with its learning rate."""
    for step in range(15, 91, 15):
        call.report(step, run.lr * step / 90)
        if call.should_stop():
            raise StoppedError
    return run.lr


def test_trials_below_the_median_are_pruned_but_not_at_once(make: Make) -> None:
    study, plan = make(trials=10, prune=True)
    work(study, plan, learn, **QUICK)
    trials = [slot.trial for slot in slots(study) if slot.trial is not None]
    assert [trial.number for trial in trials if trial.state == TrialState.PRUNED]
    assert all(max(trial.intermediate_values) >= 30 for trial in trials), "the first third is left alone"


def test_a_slot_repeated_after_a_kill_ends_as_in_its_turn(make: Make) -> None:
    study, plan = make("lr=0.01..1", trials=8, prune=True)
    keeper = Keeper(plan, 0.0)
    keeper.tend(study)
    killed = claim(study)
    assert killed is not None
    suggest(plan, killed)
    killed.set_user_attr("beat", 1)
    work(study, plan, lambda run, call: learn(replace(run, lr=run.lr + 10), call), **QUICK, most=7)
    keeper.tend(study)
    keeper.tend(study)  # sees no heartbeat since
    assert work(study, plan, learn, **QUICK) == 1
    again = slots(study)[0].trial
    assert again is not None
    assert (again.state, again.number > 7) == (TrialState.COMPLETE, True), "nothing came before it"


def test_grids_are_complete_and_not_pruned(make: Make) -> None:
    study, plan = make("lr={0.3, 0.1}, seed={0, 1}", trials=None, prune=True)
    assert (plan.trials, plan.prune) == (4, False)
    work(study, plan, by_rate, **QUICK)
    assert [trial.params for trial in study.get_trials()] == plan.points


def test_a_study_can_grow_and_another_plan_is_refused(make: Make, tmp_path: Path) -> None:
    study, plan = make(trials=3)
    work(study, plan, by_rate, **QUICK)
    more, plan = make(trials=5)
    assert len(slots(more)) == 5
    assert work(more, plan, by_rate, **QUICK) == 2
    other = plan_search({"data": "digits", "net": "linear", "weighting": "MAE"}, "lr={0.1, 1}")
    storage = open_storage(sqlite_url(tmp_path / "study.db"))
    with pytest.raises(ValueError, match="is another search"):
        open_study(other, storage, study.study_name)
    with pytest.raises(ValueError, match="no study 'nothing'"):
        join_study(storage, "nothing")
    optuna.create_study(storage=storage, study_name="foreign")
    with pytest.raises(ValueError, match="was not created by"):
        join_study(storage, "foreign")


def test_sqlite_is_shared_safely(tmp_path: Path) -> None:
    storage = open_storage(sqlite_url(tmp_path / "study.db"))
    with storage.engine.connect() as connection:
        assert connection.execute(sqlalchemy.text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(sqlalchemy.text("PRAGMA busy_timeout")).scalar() == 120_000


@pytest.mark.parametrize(
    ("url", "kind", "about"),
    [
        ("nonsense", ValueError, "not a database URL"),
        ("oracle7://x/y", ValueError, "driver for oracle7"),
        ("sqlite:////no/such/folder/study.db", ConnectionError, "the folder /no/such/folder does not exist"),
        ("postgresql+psycopg://me:secret@127.0.0.1:1/x", ConnectionError, r"me:\*\*\*@127.0.0.1:1/x cannot be opened"),
    ],
)
def test_a_database_that_cannot_be_reached_is_refused(url: str, kind: type[Exception], about: str) -> None:
    with pytest.raises(kind, match=about) as refused:
        open_storage(url)
    assert "secret" not in str(refused.value)


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.db").write_text("something else entirely, and long enough to be looked at " * 20)
    with pytest.raises(ConnectionError, match="not a database"):
        open_storage(sqlite_url(tmp_path / "study.db"))


def test_a_password_is_never_shown() -> None:
    assert hide_password("nonsense") == "(invalid URL)"
    assert "secret" not in hide_password("mysql://me:secret@host/x")
