"""A study as numbered slots, each of which is done exactly once, whoever is killed on the way.

A trial of Optuna carries the number of its slot. A slot whose trials have all failed gets another one; a slot that by
a race has two open ones keeps the lower number. These two rules are applied again and again by everybody and depend on
nothing that was remembered, so there is no moment at which a kill could lose a slot or leave it running.

Workers beat: a counter in the trial rises while they live. Whoever has watched a running trial for the grace period
without a change calls it lost. Only the watcher's own clock is used, so clocks need not agree, and a worker that died
before its first beat is found out like any other (Optuna's own heartbeat overlooks it).
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import optuna
from optuna import Study, Trial
from optuna.distributions import BaseDistribution
from optuna.exceptions import DuplicatedStudyError, UpdateFinishedTrialError
from optuna.pruners import MedianPruner, NopPruner
from optuna.samplers import BaseSampler, TPESampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from reweigh.lab.search.plan import Plan
from reweigh.lab.search.space import Choice, Range, Scalar

WINDOW = 8  # slots that wait for a worker; all at once would be read again and again
ATTEMPTS = 10  # workers that may die in one slot before it is given up
OPEN = (TrialState.WAITING, TrialState.RUNNING)
DONE = (TrialState.COMPLETE, TrialState.PRUNED)


def open_study(plan: Plan, storage: BaseStorage, name: str | None = None) -> optuna.Study:
    """The study of a plan, made where it is missing; another plan under the same name is refused."""
    name = name or plan.name
    try:
        study = optuna.create_study(storage=storage, study_name=name, direction="maximize")
    except DuplicatedStudyError:
        study = optuna.load_study(study_name=name, storage=storage)
    there = _plan_text(study)
    if there is None:  # just made, by us or by somebody who has not said yet what it is, or was killed before that
        study.set_user_attr("trials", plan.trials)
        study.set_user_attr("seeds", list(plan.seeds))
        study.set_user_attr("plan", plan.to_json())
    elif there != plan.to_json():
        raise ValueError(f"the study {name!r} is there already and is another search; choose another name")
    if plan.trials > study.user_attrs.get("trials", 0):
        study.set_user_attr("trials", plan.trials)
    return _equipped(study, plan)


def join_study(storage: BaseStorage, name: str) -> tuple[optuna.Study, Plan]:
    """A study that somebody else has made, and its plan."""
    try:
        study = optuna.load_study(study_name=name, storage=storage)
    except KeyError:
        raise ValueError(f"there is no study {name!r} in this database; begin one, or look at its name") from None
    text = _plan_text(study)
    if text is None:
        raise ValueError(f"{name!r} is a study that reweigh search has not made")
    plan = Plan.from_json(text, study.user_attrs["trials"], study.user_attrs["seeds"])
    return _equipped(study, plan), plan


def _plan_text(study: optuna.Study) -> str | None:
    text = study.user_attrs.get("plan")
    return None if text is None else str(text)


def _equipped(study: optuna.Study, plan: Plan) -> optuna.Study:
    study.sampler = BySlot(plan.seed)
    # The first third is left alone: what resists noise often learns slowly at first.
    warm = plan.iterations // 3
    study.pruner = MedianPruner(n_startup_trials=5, n_warmup_steps=warm) if plan.prune else NopPruner()
    return study


class Slot(NamedTuple):
    """One of the trials that were asked for, and what has become of it.

    Attributes:
        number: of the slot.
        trial: the one that counts: done, else open, else the last that failed.
        lost: how many workers died in it.
    """

    number: int
    trial: FrozenTrial | None
    lost: int

    @property
    def error(self) -> str | None:
        """Why it is not going to be done, if so."""
        if self.trial is not None and self.trial.state == TrialState.FAIL:
            if self.trial.user_attrs.get("error"):
                return str(self.trial.user_attrs["error"])
            if self.lost >= ATTEMPTS:
                return f"given up: {self.lost} workers died in it"
        return None

    @property
    def is_finished(self) -> bool:
        """Whether nobody need work on it any more."""
        return self.trial is not None and (self.trial.state in DONE or self.error is not None)

    @property
    def is_waiting(self) -> bool:
        """Whether a worker could take it now."""
        return self.trial is not None and self.trial.state == TrialState.WAITING


def slots(study: optuna.Study) -> list[Slot]:
    """All slots of a study, in order."""
    return slots_of(study.get_trials(deepcopy=False), int(study.user_attrs.get("trials", 0)))


def slots_of(trials: Sequence[FrozenTrial], count: int) -> list[Slot]:
    """The slots of these trials, which come in order of their numbers."""
    by_slot: list[list[FrozenTrial]] = [[] for _ in range(count)]
    for trial in trials:
        number = trial.user_attrs.get("slot")
        if isinstance(number, int) and number < count:
            by_slot[number].append(trial)
    return [Slot(i, _counting(mine), sum(map(_is_lost, mine))) for i, mine in enumerate(by_slot)]


def _counting(trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    for states in (DONE, OPEN):
        for trial in trials:
            if trial.state in states:
                return trial
    wrong = [trial for trial in trials if trial.user_attrs.get("error")]
    failed = wrong or trials
    return failed[-1] if failed else None


def _is_lost(trial: FrozenTrial) -> bool:
    said = trial.user_attrs.keys() & {"error", "left", "surplus"}
    return trial.state == TrialState.FAIL and not said


@dataclass
class Keeper:
    """Keeps the two rules and calls trials lost; every worker has one.

    Args:
        plan: of the study.
        grace: seconds without a beat after which a running trial is lost.
        clock: seconds.
    """

    plan: Plan
    grace: float
    clock: Callable[[], float] = time.monotonic
    _seen: dict[int, tuple[Any, float]] = field(default_factory=dict)

    def tend(self, study: optuna.Study) -> list[Slot]:
        """Fail what is lost, open what is missing, and say how the slots stand."""
        trials = study.get_trials(deepcopy=False)
        lost = [trial.number for trial in trials if trial.state == TrialState.RUNNING and self._is_silent(trial)]
        for number in lost:
            give_up(study, number)
        if lost:
            trials = study.get_trials(deepcopy=False)
        found = slots_of(trials, int(study.user_attrs["trials"]))
        missing = [slot for slot in found if not slot.is_finished and not _is_open(slot)]
        room = WINDOW - sum(trial.state == TrialState.WAITING for trial in trials)
        if not missing or room <= 0:
            return found
        if any(trial.state == TrialState.RUNNING for trial in trials):
            random.shuffle(missing)  # others may be doing this at the same moment, and should open other ones
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
    """Open a slot: with its point in a grid, with the point it had where a worker died, else free."""
    if plan.points is not None:
        params: dict[str, Any] = dict(plan.points[slot.number])
    else:
        params = dict(slot.trial.params) if slot.trial is not None else {}
    study.enqueue_trial(params, user_attrs={"slot": slot.number})


def reopen(study: optuna.Study, plan: Plan) -> None:
    """Open the slots again that failed for want of memory: by now, or on this machine, there may be enough."""
    for slot in slots(study):
        if slot.error is not None and slot.trial is not None and slot.trial.user_attrs.get("memory"):
            enqueue(study, slot, plan)


def give_up(study: optuna.Study, number: int) -> bool:
    """Fail a running trial; False where somebody else has finished it meanwhile."""
    try:
        study.tell(number, state=TrialState.FAIL)
    except (UpdateFinishedTrialError, ValueError):
        return False
    return True


STARTUP = 8  # trials drawn at random before the model of what is good means anything


class BySlot(BaseSampler):
    """TPE whose random numbers come from (seed, slot): one worker alone gives the same study every time, and many
    never draw the same numbers."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._inner: TPESampler = self._fresh(None)

    def _fresh(self, slot: object) -> TPESampler:
        digest = hashlib.sha256(f"{self._seed} {slot}".encode()).digest()
        seed = int.from_bytes(digest[:4], "little")
        return TPESampler(seed=seed, n_startup_trials=STARTUP, multivariate=True, constant_liar=True)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        self._inner = self._fresh(trial.user_attrs.get("slot"))
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
    """The point that a trial tries."""
    space = plan.space
    point: dict[str, Scalar] = {}
    if len(space.branches) > 1:
        point["branch"] = trial.suggest_categorical("branch", list(range(len(space.branches))))
    number = int(point.get("branch") or 0)
    for key, choice in space.branches[number].choices.items():
        point[space.key(number, key)] = _drawn(trial, space.key(number, key), choice)
    return point


def point_of(plan: Plan, params: Mapping[str, Any]) -> dict[str, Scalar]:
    """The point of a trial from what the study remembers of it."""
    number = int(params.get("branch") or 0)
    point: dict[str, Scalar] = {"branch": number} if len(plan.space.branches) > 1 else {}
    for key, choice in plan.space.branches[number].choices.items():
        name = plan.space.key(number, key)
        point[name] = choice.value(params[name]) if isinstance(choice, Range) else params[name]
    return point


def _drawn(trial: Trial, name: str, choice: Choice) -> Scalar:
    if not isinstance(choice, Range):
        return trial.suggest_categorical(name, choice if isinstance(choice, tuple) else (choice,))
    if choice.whole:
        return trial.suggest_int(name, int(choice.low), int(choice.high), log=choice.log)
    return choice.value(trial.suggest_float(name, choice.low, choice.high, log=choice.log))
