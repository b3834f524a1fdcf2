"""One worker: takes a slot, works, beats meanwhile, says what came of it, until all are finished."""

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
    """What a worker needs to know besides the plan.

    Attributes:
        storage: the URL of the study's database.
        runs: the folder that the folders of runs lie in.
        where: fields of `Run` that say where or how fast, such as device.
        beat: seconds between two signs of life of a worker.
        grace: seconds without one after which it is taken for dead.
    """

    storage: str
    runs: Path
    where: Mapping[str, Any] = field(default_factory=dict)
    beat: float = BEAT
    grace: float = GRACE

    def to_mapping(self) -> dict[str, Any]:
        """In values that JSON has."""
        return {**vars(self), "runs": str(self.runs), "where": dict(self.where)}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Site:
        """The site of `to_mapping`."""
        return cls(**{**mapping, "runs": Path(mapping["runs"])})


CIRCUMSTANCES = (DataError, MissingExtraError, OSError, StorageInternalError)
"""What is the fault of the place and not of the setting: the next trial would meet it, too."""


class StoppedError(Exception):
    """An objective ended early because `Call.should_stop` said so."""


class Call:
    """What an objective is told to do besides its run.

    `report` hands over the score at a step; `should_stop` says whether to end early: because the trial is below the
    median, because the worker leaves, or because somebody took the worker for dead and the trial is another's now.
    """

    def __init__(self, trial: optuna.Trial, beat: float, should_leave: Callable[[], bool]) -> None:
        self._trial, self._beat, self._should_leave = trial, beat, should_leave
        self._reported: set[int] = set()
        self._over = threading.Event()
        self.is_pruned = self.is_lost = False

    def report(self, step: int, score: float) -> None:
        """The score at a step; a second one for the same step changes nothing."""
        if step in self._reported or self.is_lost:
            return
        self._reported.add(step)
        try:
            self._trial.report(score, step)
            self.is_pruned = self.is_pruned or self._trial.should_prune()
        except UpdateFinishedTrialError:
            self.is_lost = True

    def should_stop(self) -> bool:
        """Whether to end early, by raising `StoppedError`."""
        return self.is_pruned or self.is_lost or self._should_leave()

    def __enter__(self) -> Call:
        self._thread = threading.Thread(target=self._keep_beating, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _keep_beating(self) -> None:
        count = 0
        while True:
            count += 1
            try:
                self._trial.set_user_attr("beat", count)
            except UpdateFinishedTrialError:
                self.is_lost = True
                return
            except StorageInternalError:
                pass  # a database that is away for a moment; the next beat tells
            if self._over.wait(self._beat):
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
    """Work on a study until its slots are finished; returns how many this worker finished.

    Args:
        study, plan: from `open_study` or `join_study`.
        objective: (run, call) -> score; what it raises finishes the slot as an error, except `StoppedError` and
            `CIRCUMSTANCES`, which hand the trial back; the latter are raised.
        where: fields of `Run` that say where or how fast, such as device.
        should_leave: asked between and during trials; a trial that is left goes back to the others.
        beat: seconds between signs of life.
        grace: seconds after which a silent worker is taken for dead.
        most: leave after so many.
    """
    keeper, finished, looked = Keeper(plan, grace), 0, -grace
    while not should_leave() and (most is None or finished < most):
        if time.monotonic() - looked > grace / 4:
            looked = time.monotonic()
            keeper.tend(study)
        trial = claim(study)
        if trial is not None:
            finished += _carry_out(study, plan, objective, trial, where, should_leave, beat)
            continue
        found = keeper.tend(study)
        # a slot that was opened twice may be done while the worker of its other trial is dead: that one is failed first
        if all(slot.is_finished for slot in found) and not study.get_trials(False, states=(TrialState.RUNNING,)):
            break
        if not any(slot.is_waiting for slot in found):
            time.sleep(min(beat, 1.0))
    return finished


def claim(study: optuna.Study) -> optuna.Trial | None:
    """A waiting trial that from now on is this worker's, or None."""
    while study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        trial = study.ask()
        slot = trial.user_attrs.get("slot")
        # Where all waiting trials were taken meanwhile, Optuna makes a new one; and a slot may have been opened twice.
        if slot is not None and _counts(trial, slots(study)[slot]):
            return trial
        _end(study, trial, TrialState.FAIL, surplus=True)
    return None


def _counts(trial: optuna.Trial, slot: Slot) -> bool:
    return slot.trial is not None and slot.trial.number == trial.number


def _carry_out(
    study: optuna.Study,
    plan: Plan,
    objective: Objective,
    trial: optuna.Trial,
    where: Mapping[str, Any] | None,
    should_leave: Callable[[], bool],
    beat: float,
) -> bool:
    """Work on a claimed trial; whether it is finished now, and by this worker."""
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
        except (KeyboardInterrupt, SystemExit, *CIRCUMSTANCES):
            with suppress(StorageInternalError):  # then it is taken over after the grace period
                _end(study, trial, TrialState.FAIL, left=True)
            raise
        except Exception as error:
            sentence = f"{type(error).__name__}: {error}"[:1000]
            return _end(study, trial, TrialState.FAIL, error=sentence, memory=_is_memory(error))
    return _end(study, trial, TrialState.COMPLETE, score)


def _is_memory(error: Exception) -> bool:
    """Whether memory was wanting: Python's, a GPU's, or the CPU's, for which torch has no class of its own."""
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
    """Finish a trial, with the reason where it failed; False where it was somebody else's by then."""
    try:
        for name, value in (("error", error), ("memory", memory), ("left", left), ("surplus", surplus)):
            if value:
                trial.set_user_attr(name, value)
        study.tell(trial, score, state)
    except (UpdateFinishedTrialError, ValueError):
        return False
    return True
