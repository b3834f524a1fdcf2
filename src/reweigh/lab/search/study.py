"""A study as numbered slots, each of which is completed exactly once, whichever workers are killed.

Every Optuna trial carries the number of its slot. A slot whose trials have all failed gets a new trial; if a race opens
two trials for a slot, the lower number counts. Every worker applies these two rules repeatedly, from the database
alone, so that a kill at any moment can neither lose a slot nor leave it running.

A worker increments a heartbeat counter in its trial. If another worker sees no change for the grace period, it marks
the trial as lost. Only the observer's clock is used, so clocks need not agree, and a worker that died before its first
heartbeat is detected too (Optuna's own heartbeat misses it).
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

import optuna
from optuna import Study, Trial
from optuna.distributions import BaseDistribution
from optuna.exceptions import DuplicatedStudyError, UpdateFinishedTrialError
from optuna.pruners import BasePruner, NopPruner
from optuna.samplers import BaseSampler, TPESampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from reweigh.lab.search.plan import Plan
from reweigh.lab.search.space import Choice, Range, Scalar

WINDOW = 8  # trials that wait for a worker; more would make every read of the database longer
ATTEMPTS = 10  # workers that may die in a slot before it fails
OPEN = (TrialState.WAITING, TrialState.RUNNING)
DONE = (TrialState.COMPLETE, TrialState.PRUNED)


def open_study(plan: Plan, storage: BaseStorage, name: str | None = None) -> optuna.Study:
    """Open the study of a plan, and create it if needed; raise ValueError if the name belongs to another plan."""
    name = name or plan.name
    try:
        study = optuna.create_study(storage=storage, study_name=name, direction="maximize")
    except DuplicatedStudyError:
        study = optuna.load_study(study_name=name, storage=storage)
    stored = _plan_text(study)
    if stored is None:  # just created, here or by a process that has not written the plan yet or was killed before
        study.set_user_attr("trials", plan.trials)
        study.set_user_attr("seeds", list(plan.seeds))
        study.set_user_attr("plan", plan.to_json())
    elif stored != plan.to_json():
        raise ValueError(f"the study {name!r} already exists and is another search; choose another name")
    if plan.trials > study.user_attrs.get("trials", 0):
        study.set_user_attr("trials", plan.trials)
    return _configure(study, plan)


def join_study(storage: BaseStorage, name: str) -> tuple[optuna.Study, Plan]:
    """Open an existing study, and return it with its plan."""
    try:
        study = optuna.load_study(study_name=name, storage=storage)
    except KeyError:
        raise ValueError(
            f"there is no study {name!r} in this database; check the name, or start the search first"
        ) from None
    text = _plan_text(study)
    if text is None:
        raise ValueError(f"{name!r} was not created by reweigh search")
    plan = Plan.from_json(text, study.user_attrs["trials"], study.user_attrs["seeds"])
    return _configure(study, plan), plan


def _plan_text(study: optuna.Study) -> str | None:
    text = study.user_attrs.get("plan")
    return None if text is None else str(text)


def _configure(study: optuna.Study, plan: Plan) -> optuna.Study:
    study.sampler = SlotSampler(plan.seed)
    # robust settings often learn slowly at first
    study.pruner = SlotPruner(warm_up=plan.iterations // 3) if plan.prune else NopPruner()
    return study


class Slot(NamedTuple):
    """One of the requested trials, and its state.

    Attributes:
        number: the slot's number.
        trial: the trial that counts: a completed one, else an open one, else the last failed one.
        lost: the number of workers that died in it.
    """

    number: int
    trial: FrozenTrial | None
    lost: int

    @property
    def error(self) -> str | None:
        """Why the slot failed for good; None if it did not."""
        if self.trial is not None and self.trial.state == TrialState.FAIL:
            if self.trial.user_attrs.get("error"):
                return str(self.trial.user_attrs["error"])
            if self.lost >= ATTEMPTS:
                return f"{self.lost} workers died in this trial"
        return None

    @property
    def is_finished(self) -> bool:
        """Whether no more work is needed."""
        return self.trial is not None and (self.trial.state in DONE or self.error is not None)

    @property
    def is_waiting(self) -> bool:
        """Whether a worker can claim it."""
        return self.trial is not None and self.trial.state == TrialState.WAITING


def slots(study: optuna.Study) -> list[Slot]:
    """Return all slots of a study, in order."""
    return slots_of(study.get_trials(deepcopy=False), int(study.user_attrs.get("trials", 0)))


def slots_of(trials: Sequence[FrozenTrial], count: int) -> list[Slot]:
    """Return the slots of trials sorted by number."""
    by_slot: list[list[FrozenTrial]] = [[] for _ in range(count)]
    for trial in trials:
        number = trial.user_attrs.get("slot")
        if isinstance(number, int) and number < count:
            by_slot[number].append(trial)
    return [Slot(i, _deciding(mine), sum(map(_is_lost, mine))) for i, mine in enumerate(by_slot)]


def _deciding(trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    for states in (DONE, OPEN):
        for trial in trials:
            if trial.state in states:
                return trial
    with_error = [trial for trial in trials if trial.user_attrs.get("error")]
    failed = with_error or trials
    return failed[-1] if failed else None


def _is_lost(trial: FrozenTrial) -> bool:
    return trial.state == TrialState.FAIL and not trial.user_attrs.keys() & {"error", "left", "surplus"}


@dataclass
class Keeper:
    """Applies the two rules and detects lost trials; every worker has one.

    Args:
        plan: the plan of the study.
        grace: seconds without a heartbeat after which a running trial is lost.
        clock: returns seconds.
    """

    plan: Plan
    grace: float
    clock: Callable[[], float] = time.monotonic
    _seen: dict[int, tuple[Any, float]] = field(default_factory=dict)

    def tend(self, study: optuna.Study) -> list[Slot]:
        """Fail lost trials, open missing ones, and return the slots."""
        trials = study.get_trials(deepcopy=False)
        lost = [trial.number for trial in trials if trial.state == TrialState.RUNNING and self._is_silent(trial)]
        for number in lost:
            fail_trial(study, number)
        if lost:
            trials = study.get_trials(deepcopy=False)
        now = slots_of(trials, int(study.user_attrs["trials"]))
        missing = [slot for slot in now if not slot.is_finished and not _is_open(slot)]
        room = WINDOW - sum(trial.state == TrialState.WAITING for trial in trials)
        if not missing or room <= 0:
            return now
        if any(trial.state == TrialState.RUNNING for trial in trials):
            random.shuffle(missing)  # so that workers doing this at the same time open different slots
        for slot in missing[:room]:
            enqueue(study, slot, self.plan)
        return slots(study)

    def _is_silent(self, trial: FrozenTrial) -> bool:
        beat, now = trial.user_attrs.get("beat"), self.clock()
        last, since = self._seen.get(trial.number, (None, now))
        if trial.number not in self._seen or last != beat:
            self._seen[trial.number] = beat, now
            return False
        return now - since > self.grace


def _is_open(slot: Slot) -> bool:
    return slot.trial is not None and slot.trial.state in OPEN


def enqueue(study: optuna.Study, slot: Slot, plan: Plan) -> None:
    """Add a trial for a slot, at its grid point, at the point of its lost trial, or at one to be sampled."""
    params: dict[str, Any] = {}
    if plan.points is not None:
        params = dict(plan.points[slot.number])
    elif slot.trial is not None and _is_complete(plan, slot.trial.params):
        params = dict(slot.trial.params)
    study.enqueue_trial(params, user_attrs={"slot": slot.number})


def _is_complete(plan: Plan, params: Mapping[str, Any]) -> bool:
    """Return whether a trial was not killed while its point was sampled: the rest of it would be another one."""
    number = int(params.get("branch") or 0)
    return all(plan.space.key(number, key) in params for key in plan.space.branches[number].choices)


def reopen(study: optuna.Study, plan: Plan) -> None:
    """Retry the slots that ran out of memory, as there may be enough now or on this machine."""
    for slot in slots(study):
        if slot.error is not None and slot.trial is not None and slot.trial.user_attrs.get("memory"):
            enqueue(study, slot, plan)


def fail_trial(study: optuna.Study, number: int) -> bool:
    """Fail a running trial; return False if another process has finished it."""
    try:
        study.tell(number, state=TrialState.FAIL)
    except (UpdateFinishedTrialError, ValueError):
        return False
    return True


COMPARED = 5  # trials in earlier slots that a trial is compared with at least
RANDOM_TRIALS = 8  # before TPE has enough to model


class SlotPruner(BasePruner):
    """Prune a trial whose best score so far is below the median of complete trials in earlier slots at the same step.

    Later slots do not count, so that a slot that is repeated after a kill ends as it would have ended in its turn.
    """

    def __init__(self, warm_up: int) -> None:
        self._warm_up = warm_up

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        step, slot = trial.last_step, trial.user_attrs.get("slot", 0)
        if step is None or step < self._warm_up:
            return False
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        earlier = [other.intermediate_values for other in complete if other.user_attrs.get("slot", slot) < slot]
        scores = [values[step] for values in earlier if step in values]
        return len(scores) >= COMPARED and max(trial.intermediate_values.values()) < median(scores)


class SlotSampler(BaseSampler):
    """TPE with random numbers from (seed, slot).

    A single worker reproduces a study, and several workers never draw the same numbers.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._inner: TPESampler = self._seeded(None)

    def _seeded(self, slot: object) -> TPESampler:
        digest = hashlib.sha256(f"{self._seed} {slot}".encode()).digest()
        seed = int.from_bytes(digest[:4], "little")
        return TPESampler(seed=seed, n_startup_trials=RANDOM_TRIALS, multivariate=True, constant_liar=True)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        self._inner = self._seeded(trial.user_attrs.get("slot"))
        return self._inner.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._inner.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Study, trial: FrozenTrial, state: Any, values: Any) -> None:
        self._inner.after_trial(study, trial, state, values)


def suggest(plan: Plan, trial: Trial) -> dict[str, Scalar]:
    """Sample the point of a trial."""
    space = plan.space
    point: dict[str, Scalar] = {}
    if len(space.branches) > 1:
        point["branch"] = trial.suggest_categorical("branch", list(range(len(space.branches))))
    number = int(point.get("branch") or 0)
    for key, choice in space.branches[number].choices.items():
        point[space.key(number, key)] = _sample(trial, space.key(number, key), choice)
    return point


def point_of(plan: Plan, params: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the point of a trial from its stored parameters."""
    number = int(params.get("branch") or 0)
    point: dict[str, Scalar] = {"branch": number} if len(plan.space.branches) > 1 else {}
    for key, choice in plan.space.branches[number].choices.items():
        name = plan.space.key(number, key)
        point[name] = choice.value(params[name]) if isinstance(choice, Range) else params[name]
    return point


def _sample(trial: Trial, name: str, choice: Choice) -> Scalar:
    if not isinstance(choice, Range):
        return trial.suggest_categorical(name, choice if isinstance(choice, tuple) else (choice,))
    if choice.is_integer:
        return trial.suggest_int(name, int(choice.low), int(choice.high), log=choice.log)
    return choice.value(trial.suggest_float(name, choice.low, choice.high, log=choice.log))
