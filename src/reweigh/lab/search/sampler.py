"""Which point a trial tries: a function of the search's seed, the slot, and what is known by then."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from optuna import Study, Trial
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial

from reweigh.lab.search.plan import Plan
from reweigh.lab.search.space import Choice, Range, Scalar

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
