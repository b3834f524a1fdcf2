"""What came of a search: every trial, the best of them, and that setting on all training data over seeds."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import optuna
from optuna.trial import TrialState

from reweigh.lab.record import read_result
from reweigh.lab.search.plan import Plan
from reweigh.lab.search.space import Scalar
from reweigh.lab.search.study import Slot, point_of, slots

State: TypeAlias = Literal["done", "pruned", "failed", "open"]


@dataclass(frozen=True)
class Tried:
    """One trial.

    Attributes:
        slot: its number.
        point: what was chosen, None before that.
        state: done, pruned (its run can be resumed), failed for good, or still open.
        score: the final one where it is done, the last one where it was pruned.
        step: the last iteration that was judged.
        run: the name of its run's folder.
        lost: workers that died in it.
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
class Final:
    """The chosen setting on all training data, with one seed; no accuracies where the data have no test part."""

    seed: int
    run: str
    accuracy: float | None
    best: float | None


@dataclass(frozen=True)
class Outcome:
    """A whole search.

    Attributes:
        name: of the study.
        plan: what was asked for; `plan.judged` says whether the validation set was clean or noisy.
        tried: all trials, by slot.
        finals: by seed; empty until there are any, and without those whose run has been removed.
        holdout: what the final accuracies are of: "test", "noisy hold-out", or "trusted set" where the only test
            part is the set that the setting was chosen by.
    """

    name: str
    plan: Plan
    tried: tuple[Tried, ...]
    finals: tuple[Final, ...] = ()
    holdout: str = "test"

    @property
    def best(self) -> Tried | None:
        """The trial with the best score among those that are done; of equals the first."""
        done = [tried for tried in self.tried if tried.state == "done" and tried.score is not None]
        return max(done, key=lambda tried: (tried.score, -tried.slot), default=None)

    @property
    def accuracy(self) -> tuple[float, float | None] | None:
        """Mean and standard deviation of the final accuracies over seeds; no deviation for a single one.

        None without final runs, or where the data have no test part.
        """
        values = [final.accuracy for final in self.finals if final.accuracy is not None]
        if not values:
            return None
        return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None

    @property
    def gone(self) -> list[int]:
        """Of a finished search, the seeds of final runs that have been removed."""
        return [seed for seed in self.plan.seeds if seed not in {final.seed for final in self.finals}]

    def setting(self, tried: Tried) -> dict[str, Any]:
        """The fields of `Run` that a trial chose."""
        return {} if tried.point is None else self.plan.space.settle(tried.point)

    def to_mapping(self) -> dict[str, Any]:
        """In values that JSON has."""
        best, (mean, deviation) = self.best, self.accuracy or (None, None)
        return {
            "study": self.name,
            "space": self.plan.space.text,
            "validation": self.plan.judged,
            "score": self.plan.score,
            "trials": [vars(tried) | {"setting": self.setting(tried)} for tried in self.tried],
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
        """The trials as a table, a column for every choice; equal searches give equal bytes."""
        keys = choice_names(self.plan)
        written = io.StringIO()
        table = csv.writer(written, lineterminator="\n")
        table.writerow(["trial", "state", "score", "step", *keys, "run"])
        for tried in self.tried:
            point = tried.point or {}
            score = None if tried.score is None else repr(tried.score)
            table.writerow([tried.slot, tried.state, score, tried.step, *map(point.get, keys), tried.run])
        return written.getvalue()


def choice_names(plan: Plan) -> list[str]:
    """The names of all that is chosen, in the order of the space."""
    space = plan.space
    names = [space.key(number, key) for number, branch in enumerate(space.branches) for key in branch.choices]
    return ["branch", *names] if len(space.branches) > 1 else names


def read_outcome(study: optuna.Study, plan: Plan, root: Path, final: optuna.Study | None = None) -> Outcome:
    """The outcome of a study as it stands, with its final runs where there are any."""
    tried = tuple(_tried(slot, plan) for slot in slots(study))
    finals = [] if final is None else _finals(slots(final), root)
    return Outcome(study.study_name, plan, tried, tuple(finals), _holdout(finals, plan, root))


def _tried(slot: Slot, plan: Plan) -> Tried:
    trial = slot.trial
    if trial is None:
        return Tried(slot.number, None, "open", None, None, None)
    states: dict[TrialState, State] = {TrialState.COMPLETE: "done", TrialState.PRUNED: "pruned"}
    number = int(trial.params.get("branch") or 0)
    # a worker may have died between two choices
    whole = all(plan.space.key(number, key) in trial.params for key in plan.space.branches[number].choices)
    point = point_of(plan, trial.params) if trial.params and whole else None
    return Tried(
        slot.number,
        point,
        "failed" if slot.error else states.get(trial.state, "open"),
        trial.value if trial.state in states else None,
        plan.iterations if trial.state == TrialState.COMPLETE else trial.last_step,
        trial.user_attrs.get("run"),
        slot.lost,
        slot.error,
    )


def _finals(found: Sequence[Slot], root: Path) -> list[Final]:
    finals = []
    for slot in found:
        if slot.trial is not None and slot.trial.state == TrialState.COMPLETE:
            run = str(slot.trial.user_attrs["run"])
            if (result := read_result(root / run)) is None:
                continue
            final, best = ((result.get(which) or {}).get("test_accuracy") for which in ("final", "best"))
            finals.append(Final(int(slot.trial.params["seed"]), run, final, best))
    return sorted(finals, key=lambda final: final.seed)


def _holdout(finals: Sequence[Final], plan: Plan, root: Path) -> str:
    if finals and plan.tests_on_trusted:
        return "trusted set"
    result = (read_result(root / finals[0].run) if finals else None) or {}
    return str(result.get("holdout", "test"))
