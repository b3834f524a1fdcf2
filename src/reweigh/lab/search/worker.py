"""A worker: claims trials, runs them while sending heartbeats, and stores their scores, until all are finished."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import optuna
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.trial import TrialState

from reweigh.errors import DataError, MissingExtraError
from reweigh.lab.search.plan import Plan
from reweigh.lab.search.study import Keeper, Slot, slots, suggest
from reweigh.lab.spec import Run

BEAT = 10.0
GRACE = 60.0


@dataclass(frozen=True)
class Site:
    """The settings of a worker that are not part of the plan.

    Attributes:
        storage: the URL of the study's database.
        runs: the directory of the run folders.
        where: fields of `Run` that do not change its result, such as device.
        beat: seconds between two heartbeats of a worker.
        grace: seconds without one after which it counts as dead.
    """

    storage: str
    runs: Path
    where: Mapping[str, Any] = field(default_factory=dict)
    beat: float = BEAT
    grace: float = GRACE

    def to_mapping(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return {**vars(self), "runs": str(self.runs), "where": dict(self.where)}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Site:
        """Return the site of `to_mapping`."""
        return cls(**{**mapping, "runs": Path(mapping["runs"])})


ENVIRONMENT_ERRORS = (DataError, MissingExtraError, OSError, StorageInternalError)
"""Errors of the machine or the data, not of the setting: the next trial would fail too."""


class StoppedError(Exception):
    """An objective ended early because `Call.should_stop` returned True."""


class Call:
    """The connection of an objective to its trial.

    `report` stores the score at a step. `should_stop` returns whether to end early: because the trial is below the
    median, because the worker leaves, or because the worker was taken for dead and the trial given to another.
    """

    def __init__(self, trial: optuna.Trial, beat: float, should_leave: Callable[[], bool]) -> None:
        self._trial, self._beat, self._should_leave = trial, beat, should_leave
        self._reported: set[int] = set()
        self._done = threading.Event()
        self.is_pruned = self.is_lost = False

    def report(self, step: int, score: float) -> None:
        """Store the score at a step; a second one for the same step is ignored."""
        if step in self._reported or self.is_lost:
            return
        self._reported.add(step)
        try:
            self._trial.report(score, step)
            self.is_pruned = self.is_pruned or self._trial.should_prune()
        except UpdateFinishedTrialError:
            self.is_lost = True

    def should_stop(self) -> bool:
        """Return whether to end early, by raising `StoppedError`."""
        return self.is_pruned or self.is_lost or self._should_leave()

    def __enter__(self) -> Call:
        self._thread = threading.Thread(target=self._send_heartbeats, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _send_heartbeats(self) -> None:
        count = 0
        while True:
            count += 1
            try:
                self._trial.set_user_attr("beat", count)
            except UpdateFinishedTrialError:
                self.is_lost = True
                return
            except StorageInternalError:
                pass  # the database may be unreachable for a moment
            if self._done.wait(self._beat):
                return


Objective: TypeAlias = Callable[[Run, Call], float]


def work(
    study: optuna.Study,
    plan: Plan,
    objective: Objective,
    *,
    where: Mapping[str, Any] | None = None,
    should_leave: Callable[[], bool] = lambda: False,
    beat: float = BEAT,
    grace: float = GRACE,
    most: int | None = None,
) -> int:
    """Work on a study until its slots are finished; return how many this worker finished.

    Args:
        study, plan: from `open_study` or `join_study`.
        objective: (run, call) -> score; an exception fails the slot, except `StoppedError` and `ENVIRONMENT_ERRORS`,
            which release the trial to other workers; the latter are raised.
        where: fields of `Run` that do not change its result, such as device.
        should_leave: polled between and during trials; if it returns True, the current trial is released.
        beat: seconds between heartbeats.
        grace: seconds after which a silent worker counts as dead.
        most: leave after this many trials.
    """
    keeper, finished, tended = Keeper(plan, grace), 0, -grace
    while not should_leave() and (most is None or finished < most):
        if time.monotonic() - tended > grace / 4:
            tended = time.monotonic()
            keeper.tend(study)
        trial = claim(study)
        if trial is not None:
            finished += _run_trial(study, plan, objective, trial, where, should_leave, beat)
            continue
        now = keeper.tend(study)
        # a finished slot that was opened twice may have another trial whose worker is dead; wait until it is failed
        if all(slot.is_finished for slot in now) and not study.get_trials(False, states=(TrialState.RUNNING,)):
            break
        if not any(slot.is_waiting for slot in now):
            time.sleep(min(beat, 1.0))
    return finished


def claim(study: optuna.Study) -> optuna.Trial | None:
    """Claim a waiting trial for this worker; None if there is none."""
    while study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        trial = study.ask()
        slot = trial.user_attrs.get("slot")
        # Optuna creates a trial if all waiting ones were claimed meanwhile, and a slot may have been opened twice
        if slot is not None and _is_deciding(trial, slots(study)[slot]):
            return trial
        _end(study, trial, TrialState.FAIL, surplus=True)
    return None


def _is_deciding(trial: optuna.Trial, slot: Slot) -> bool:
    return slot.trial is not None and slot.trial.number == trial.number


def _run_trial(
    study: optuna.Study,
    plan: Plan,
    objective: Objective,
    trial: optuna.Trial,
    where: Mapping[str, Any] | None,
    should_leave: Callable[[], bool],
    beat: float,
) -> bool:
    """Run a claimed trial; return whether this worker finished it."""
    with Call(trial, beat, should_leave) as call:
        try:
            run = plan.run(suggest(plan, trial), where)
            trial.set_user_attr("run", run.folder_name())
            score = objective(run, call)
        except StoppedError:
            if call.is_pruned:
                return _end(study, trial, TrialState.PRUNED)
            if not call.is_lost:
                _end(study, trial, TrialState.FAIL, left=True)
            return False
        except UpdateFinishedTrialError:
            return False
        except (KeyboardInterrupt, SystemExit, *ENVIRONMENT_ERRORS):
            with suppress(StorageInternalError):  # another worker repeats the trial after the grace period
                _end(study, trial, TrialState.FAIL, left=True)
            raise
        except Exception as error:
            message = f"{type(error).__name__}: {error}"[:1000]
            return _end(study, trial, TrialState.FAIL, error=message, memory=_is_out_of_memory(error))
    return _end(study, trial, TrialState.COMPLETE, score)


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether Python, a GPU or the CPU ran out of memory; torch has no class for the last."""
    name = type(error).__name__
    return isinstance(error, MemoryError) or name == "OutOfMemoryError" or "can't allocate memory" in str(error)


def _end(
    study: optuna.Study,
    trial: optuna.Trial,
    state: TrialState,
    score: float | None = None,
    *,
    error: str | None = None,
    memory: bool = False,
    left: bool = False,
    surplus: bool = False,
) -> bool:
    """Finish a trial, with the reason if it failed; return False if another process has finished it."""
    try:
        for name, value in (("error", error), ("memory", memory), ("left", left), ("surplus", surplus)):
            if value:
                trial.set_user_attr(name, value)
        study.tell(trial, score, state)
    except (UpdateFinishedTrialError, ValueError):
        return False
    return True
