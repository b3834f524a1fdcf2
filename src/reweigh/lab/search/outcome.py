"""The outcome of a search: its trials, the best of them, and the runs of that setting on all training data."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import optuna
from optuna.trial import TrialState

from reweigh.lab.csv_text import csv_text
from reweigh.lab.record import read_result
from reweigh.lab.search.plan import Plan
from reweigh.lab.search.space import Scalar
from reweigh.lab.search.study import Slot, point_of, slots
from reweigh.lab.spec import parse

State: TypeAlias = Literal["done", "pruned", "failed", "open"]


@dataclass(frozen=True)
class TrialResult:
    """One trial.

    Attributes:
        slot: its number.
        point: the sampled values; None before sampling.
        state: done, pruned (its run can be resumed), failed for good, or open.
        score: the final score if done, the last one if pruned.
        step: the last evaluated iteration.
        run: the name of the run's folder.
        lost: the number of workers that died in it.
        error: why it failed.
    """

    slot: int
    point: Mapping[str, Scalar] | None
    state: State
    score: float | None
    step: int | None
    run: str | None
    lost: int = 0
    error: str | None = None


@dataclass(frozen=True)
class FinalRun:
    """A run of the best setting on all training data; without accuracies if there is no test set."""

    seed: int
    run: str
    accuracy: float | None
    best: float | None


@dataclass(frozen=True)
class Outcome:
    """The outcome of a search.

    Attributes:
        name: the name of the study.
        plan: the plan; `plan.judged` describes the validation set.
        trials: by slot.
        finals: the final runs by seed, without those whose folder was removed.
        holdout: what the final accuracies are measured on: "test", "noisy hold-out", or "trusted set" if the only
            test set is the one that selected the setting.
    """

    name: str
    plan: Plan
    trials: tuple[TrialResult, ...]
    finals: tuple[FinalRun, ...] = ()
    holdout: str = "test"

    @property
    def best(self) -> TrialResult | None:
        """The completed trial with the best score, the first among equals; None without one."""
        done = [trial for trial in self.trials if trial.state == "done" and trial.score is not None]
        return max(done, key=lambda trial: (trial.score, -trial.slot), default=None)

    @property
    def accuracy(self) -> tuple[float, float | None] | None:
        """Mean and standard deviation (None for one seed) of the final accuracies; None if there are none."""
        values = [final.accuracy for final in self.finals if final.accuracy is not None]
        if not values:
            return None
        return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None

    @property
    def missing_seeds(self) -> list[int]:
        """The seeds without a final run; in a finished search, those whose run was removed."""
        return [seed for seed in self.plan.seeds if seed not in {final.seed for final in self.finals}]

    def setting(self, trial: TrialResult) -> dict[str, Any]:
        """Return the fields of `Run` that a trial sampled."""
        return {} if trial.point is None else self.plan.space.settle(trial.point)

    def choices(self, trial: TrialResult) -> dict[str, Scalar]:
        """Return what a trial sampled, as a flat mapping of arguments and fields."""
        flat: dict[str, Scalar] = {}
        for name, value in self.setting(trial).items():
            if name in ("weighting", "loss", "method"):
                expression = parse(str(value))
                flat["loss or method"] = expression.name
                flat |= {key: item if isinstance(item, int | float) else str(item) for key, item in expression.kwargs}
            else:
                flat[name] = value
        return flat

    def to_mapping(self) -> dict[str, Any]:
        """Return the outcome as JSON values."""
        best, (mean, deviation) = self.best, self.accuracy or (None, None)
        return {
            "study": self.name,
            "space": self.plan.space.text,
            "validation": self.plan.judged,
            "score": self.plan.score,
            "trials": [vars(trial) | {"setting": self.setting(trial)} for trial in self.trials],
            "best": None if best is None else vars(best) | {"setting": self.setting(best)},
            "final": None
            if not self.finals
            else {
                "holdout": self.holdout,
                "mean": mean,
                "deviation": deviation,
                "seeds": [vars(final) for final in self.finals],
            },
        }

    def to_csv(self) -> str:
        """Return the trials as CSV with a column for every choice; equal searches give equal bytes."""
        keys = choice_names(self.plan)
        rows = []
        for trial in self.trials:
            point = trial.point or {}
            score = None if trial.score is None else repr(trial.score)
            rows.append([trial.slot, trial.state, score, trial.step, *map(point.get, keys), trial.run])
        return csv_text(["trial", "state", "score", "step", *keys, "run"], rows)


def choice_names(plan: Plan) -> list[str]:
    """Return the names of all choices, in the order of the space."""
    space = plan.space
    names = [space.key(number, key) for number, branch in enumerate(space.branches) for key in branch.choices]
    return ["branch", *names] if len(space.branches) > 1 else names


def read_outcome(study: optuna.Study, plan: Plan, root: Path, final: optuna.Study | None = None) -> Outcome:
    """Return the current outcome of a study, with the final runs of the study `final`."""
    results = tuple(_trial_result(slot, plan) for slot in slots(study))
    finals = [] if final is None else _finals(slots(final), root)
    return Outcome(study.study_name, plan, results, tuple(finals), _holdout(finals, plan, root))


def _trial_result(slot: Slot, plan: Plan) -> TrialResult:
    trial = slot.trial
    if trial is None:
        return TrialResult(slot.number, None, "open", None, None, None)
    states: dict[TrialState, State] = {TrialState.COMPLETE: "done", TrialState.PRUNED: "pruned"}
    number = int(trial.params.get("branch") or 0)
    # a worker may have died while sampling
    is_complete = all(plan.space.key(number, key) in trial.params for key in plan.space.branches[number].choices)
    point = point_of(plan, trial.params) if trial.params and is_complete else None
    return TrialResult(
        slot.number,
        point,
        "failed" if slot.error else states.get(trial.state, "open"),
        trial.value if trial.state in states else None,
        plan.iterations if trial.state == TrialState.COMPLETE else trial.last_step,
        trial.user_attrs.get("run"),
        slot.lost,
        slot.error,
    )


def _finals(completed: Sequence[Slot], root: Path) -> list[FinalRun]:
    finals = []
    for slot in completed:
        if slot.trial is not None and slot.trial.state == TrialState.COMPLETE:
            run = str(slot.trial.user_attrs["run"])
            if (result := read_result(root / run)) is None:
                continue
            final, best = ((result.get(which) or {}).get("test_accuracy") for which in ("final", "best"))
            finals.append(FinalRun(int(slot.trial.params["seed"]), run, final, best))
    return sorted(finals, key=lambda final: final.seed)


def _holdout(finals: Sequence[FinalRun], plan: Plan, root: Path) -> str:
    if finals and plan.tests_on_trusted:
        return "trusted set"
    result = (read_result(root / finals[0].run) if finals else None) or {}
    return str(result.get("holdout", "test"))
