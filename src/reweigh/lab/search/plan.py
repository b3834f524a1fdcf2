"""What a search is: the run it varies, the space, and what is held out to judge by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

from reweigh.lab.run.material import truth_known
from reweigh.lab.search.space import Scalar, Space, parse_space
from reweigh.lab.spec import Run, at_step, describe, parse

Labels: TypeAlias = Literal["clean", "noisy"]
TRIALS = 40
SEEDS = (0, 1, 2)
HELD_OUT = 0.2  # of the training part, as in the paper
TAUGHT = ("weighting", "loss", "method")


@dataclass(frozen=True)
class Plan:
    """A search, whole; equal plans are one study, whoever works on it and from where.

    Attributes:
        fields: of `Run`, as far as the space leaves them alone; none that say only where or how fast.
        space: what is chosen.
        held: the fields of `Run` that a trial has and a final run has not: what it is judged on.
        judged: what that is, for people: "clean", "noisy", ... and the details.
        score: the column of a run's result that is to be large.
        seed: of the choices.
        prune: stop a trial whose score at some row is below the median of the others at theirs.
        trials: how many; all points for a grid. A study can grow, so this is no part of its name.
        seeds: of the final runs; no part of its name either.
        where: fields of `Run` that say only where or how fast, such as device, where `search` is told no others.
    """

    fields: Mapping[str, Any]
    space: Space
    held: Mapping[str, Any]
    judged: str
    score: str = "validation_accuracy"
    seed: int = 0
    prune: bool = True
    trials: int = field(default=TRIALS, compare=False)
    seeds: tuple[int, ...] = field(default=SEEDS, compare=False)
    where: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def run(self, point: Mapping[str, Scalar], where: Mapping[str, Any] | None = None) -> Run:
        """The run of a point; `where` comes before the plan's own."""
        return self.run_of(self.space.settle(point), where)

    def run_of(self, chosen: Mapping[str, Any], where: Mapping[str, Any] | None = None) -> Run:
        """The run whose fields of the space are chosen."""
        return Run.from_mapping({**self.fields, **self.held, **chosen, **self.where, **(where or {})})

    def final(self, point: Mapping[str, Scalar]) -> Plan:
        """The same setting on all training data, once for every seed: a grid of seeds.

        Where a trusted table is the only test part there is, it stays: without, a part of the training data would be
        set aside for one.
        """
        kept = {key: value for key, value in self.held.items() if key == "test_data"}
        whole = {**kept, **self.fields, **self.space.settle(point)}
        fields = {key: value for key, value in whole.items() if key != "seed"}
        space = parse_space(f"seed={{{', '.join(map(str, self.seeds))}}}")
        return Plan(fields, space, {}, "test", "test_accuracy", self.seed, False, len(self.seeds), where=self.where)

    @property
    def tests_on_trusted(self) -> bool:
        """Whether final runs are tested on the very set that the trials were judged by."""
        return self.score == "test_accuracy" and not (self.held and "test_data" in self.fields)

    @cached_property
    def points(self) -> list[dict[str, Scalar]] | None:
        """The points of a grid, None where there are ranges."""
        return list(self.space.points()) if self.space.is_grid else None

    @property
    def iterations(self) -> int:
        """Of every trial, as far as the space leaves them alone."""
        default = next(field.default for field in describe() if field.name == "iterations")
        return int(self.fields.get("iterations", default))

    def to_json(self) -> str:
        """What identifies the plan, as JSON text."""
        names = ("fields", "held", "judged", "score", "seed", "prune")
        content = {name: getattr(self, name) for name in names} | {"space": self.space.text}
        return json.dumps(content, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, trials: int, seeds: Sequence[int]) -> Plan:
        """The plan of `to_json`, and what is no part of it."""
        content = json.loads(text)
        return cls(**content | {"space": parse_space(content["space"]), "trials": trials, "seeds": tuple(seeds)})

    @property
    def name(self) -> str:
        """A name for the study: equal plans, equal names."""
        return f"search-{hashlib.sha256(self.to_json().encode()).hexdigest()[:12]}"


def plan_search(
    fields: Mapping[str, Any],
    space: str,
    *,
    trials: int | None = None,
    trusted: str | None = None,
    seed: int = 0,
    prune: bool = True,
    seeds: Sequence[int] = SEEDS,
) -> Plan:
    """A checked plan.

    The paper's protocol: hold out `validation` (a fifth) of the training part, train on the corrupted rest, and judge
    by the held-out part with its true labels, or as given with `validation_labels="noisy"`.

    Args:
        fields: of `Run`, those that the space does not choose. Those that say only where or how fast (data_root,
            device, workers, init_file) are no part of the study, and `search(where=...)` may say otherwise.
        space: see `reweigh.lab.search.space`.
        trials: how many points to try (40); a grid is tried whole, and this must be left out.
        trusted: judge by a set of the user's own instead: a table with the columns of the data, or "test" for the
            test part of the data set itself.
        seed: of the choices.
        prune: stop trials below the median; a grid is never pruned.
        seeds: of the final runs; none, and there are none.
    """
    read = parse_space(space)
    here = {item.name for item in describe() if not item.hashed}
    where = {key: value for key, value in fields.items() if key in here}
    fields = {key: value for key, value in fields.items() if key not in here}
    _check_apart(fields, read)
    if read.is_grid and trials is not None:
        raise ValueError(f"trials is {trials}, but a space of lists is a grid and is tried whole; leave trials out")
    if trials is not None and trials < 1:
        raise ValueError(f"trials is {trials}; expected at least 1")
    held, score, judged = _held_out(fields, trusted)
    fields = {key: value for key, value in fields.items() if key not in ("validation", "validation_labels")}
    plan = Plan(fields, read, held, judged, score, seed, prune and not read.is_grid)
    count = len(plan.points) if plan.points is not None else trials or TRIALS
    plan = replace(plan, trials=count, seeds=tuple(dict.fromkeys(seeds)), where=where)
    if "evaluate_every" not in fields and "evaluate_every" not in read.text:
        plan = replace(plan, fields={**fields, "evaluate_every": max(1, plan.iterations // 10)})
    check(plan)
    return plan


def check(plan: Plan) -> None:
    """Refuse a plan some of whose runs would be refused, before any of them is begun.

    Of losses and methods the names of arguments are looked at; their values are, once there are data, by
    `reweigh.lab.search.checks`.
    """
    for corner in plan.space.corners():
        try:
            _check_taught(plan.run_of(corner))
        except (TypeError, ValueError) as error:
            raise cannot_be(plan, error) from error


def cannot_be(plan: Plan, error: Exception) -> ValueError:
    """What to raise where a run of a plan is refused with an error."""
    return ValueError(f"space {plan.space.text!r} holds a run that cannot be: {error}")


def _check_taught(run: Run) -> None:
    from reweigh.criterion import Criterion
    from reweigh.lab.objectives.losses import NAMES as LOSSES
    from reweigh.lab.objectives.losses import arguments_of
    from reweigh.lab.objectives.methods import NAMES as METHODS
    from reweigh.lab.objectives.weightings import weighting_from

    if run.weighting is not None:
        weighting = weighting_from(at_step(parse(run.weighting), 0, run.iterations))
        Criterion(weighting, normalise=None if run.normalise == "none" else run.normalise)
    elif run.loss is not None and (loss := at_step(parse(run.loss), 0, run.iterations)).name in LOSSES:
        arguments_of(LOSSES[loss.name], loss, ("reduction", "class_counts"))
    elif run.method is not None and (method := parse(run.method)).name in METHODS:
        arguments_of(METHODS[method.name], method, ("context",))


def _check_apart(fields: Mapping[str, Any], space: Space) -> None:
    """Refuse what is both given and chosen."""
    for branch in space.branches:
        given = [name for name in TAUGHT if name in fields]
        if branch.taught is not None and given:
            raise ValueError(
                f"the space is about {branch.taught}, and {given[0]} is given besides; leave one of them out"
            )
        for name in branch.fields:
            if name in ("validation", "validation_labels", "test_data", "data", "iterations"):
                raise ValueError(f"{name} cannot be in the space: its trials could not be compared")
            if name in fields:
                raise ValueError(f"{name} is given, and it is in the space besides; leave one of them out")


def _held_out(fields: Mapping[str, Any], trusted: str | None) -> tuple[dict[str, Any], str, str]:
    """The fields that hold out what trials are judged by, the column of the score, and a name for people."""
    if trusted is not None:
        for name in ("validation", "validation_labels"):
            if name in fields:
                raise ValueError(f"{name} is given besides a trusted set; leave one of them out")
        if trusted == "test":
            return {}, "test_accuracy", "trusted: the test part of the data set, which no longer is a test"
        return {"test_data": trusted}, "test_accuracy", f"trusted: {trusted}"
    fraction = float(fields.get("validation", HELD_OUT))
    if not fraction > 0:
        raise ValueError("validation is 0; a search needs a validation part, or a trusted set")
    labels: Labels = fields.get("validation_labels", "clean")
    held: dict[str, Any] = {"validation": fraction} | ({} if labels == "clean" else {"validation_labels": labels})
    part = f"{100 * fraction:g} % of the training part"
    if labels == "noisy":
        return held, "validation_accuracy", f"noisy: {part}, with labels as wrong as those trained on"
    if not truth_known(fields.get("noise")):
        return held, "validation_accuracy", f"as given: {part}, with labels that nobody has checked"
    return held, "validation_accuracy", f"clean: {part}, with its true labels"
