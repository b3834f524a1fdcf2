"""The plan of a search: the fixed fields of its runs, the space, and the validation set."""

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
OBJECTIVES = ("weighting", "loss", "method")


@dataclass(frozen=True)
class Plan:
    """The plan of a search; equal plans have the same study.

    Attributes:
        fields: the fixed fields of `Run` that change its result.
        space: the choices.
        held: the fields of `Run` that hold out the validation set of a trial; a final run does not have them.
        judged: a description of the validation set: "clean", "noisy", ... and details.
        score: the column of a run's result to maximise.
        seed: the seed of the sampler.
        prune: stop a trial whose score is below the median of the others at the same step.
        trials: the number of trials; all points for a grid. Not part of the study's name, so that a study can grow.
        seeds: the seeds of the final runs; not part of the name.
        where: defaults for fields of `Run` that do not change its result, such as device.
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
        """Return the run of a point; `where` overrides the plan's own."""
        return self.run_of(self.space.settle(point), where)

    def run_of(self, chosen: Mapping[str, Any], where: Mapping[str, Any] | None = None) -> Run:
        """Return the run with the given values for the fields of the space."""
        return Run.from_mapping({**self.fields, **self.held, **chosen, **self.where, **(where or {})})

    def final(self, point: Mapping[str, Scalar]) -> Plan:
        """Return the plan that trains a setting on all training data, as a grid of seeds.

        A trusted table stays if it is the only test set; otherwise a part of the training data would be held out.
        """
        kept = {key: value for key, value in self.held.items() if key == "test_data"}
        settled = {**kept, **self.fields, **self.space.settle(point)}
        fields = {key: value for key, value in settled.items() if key != "seed"}
        space = parse_space(f"seed={{{', '.join(map(str, self.seeds))}}}")
        return Plan(fields, space, {}, "test", "test_accuracy", self.seed, False, len(self.seeds), where=self.where)

    @property
    def tests_on_trusted(self) -> bool:
        """Whether final runs are tested on the set that selected the setting."""
        return self.score == "test_accuracy" and not (self.held and "test_data" in self.fields)

    @cached_property
    def points(self) -> list[dict[str, Scalar]] | None:
        """The points of a grid; None if the space has ranges."""
        return list(self.space.points()) if self.space.is_grid else None

    @property
    def iterations(self) -> int:
        """The iterations of every trial."""
        default = next(field.default for field in describe() if field.name == "iterations")
        return int(self.fields.get("iterations", default))

    def to_json(self) -> str:
        """Return the JSON text that identifies the plan."""
        names = ("fields", "held", "judged", "score", "seed", "prune")
        content = {name: getattr(self, name) for name in names} | {"space": self.space.text}
        return json.dumps(content, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, trials: int, seeds: Sequence[int]) -> Plan:
        """Return the plan of `to_json`, with the fields that are not part of it."""
        content = json.loads(text)
        return cls(**content | {"space": parse_space(content["space"]), "trials": trials, "seeds": tuple(seeds)})

    @property
    def name(self) -> str:
        """The default name of the study; equal plans have equal names."""
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
    """Make a plan and validate it.

    The paper's protocol: hold out `validation` (a fifth) of the training part, train on the noisy rest, and score on
    the held-out part with its true labels, or with noisy ones for `validation_labels="noisy"`.

    Args:
        fields: the fields of `Run` that are not in the space. Those that do not change its result (data_root, device,
            workers, init_file) are not part of the study, and `search(where=...)` overrides them.
        space: see `reweigh.lab.search.space`.
        trials: the number of trials (40); must be omitted for a grid, which runs all its points.
        trusted: score on this set instead: a table with the columns of the data, or "test" for the data's test part.
        seed: the seed of the sampler.
        prune: stop trials below the median; a grid is never pruned.
        seeds: the seeds of the final runs; empty for no final runs.
    """
    parsed = parse_space(space)
    unhashed = {item.name for item in describe() if not item.hashed}
    where = {key: value for key, value in fields.items() if key in unhashed}
    fields = {key: value for key, value in fields.items() if key not in unhashed}
    _check_disjoint(fields, parsed)
    if parsed.is_grid and trials is not None:
        raise ValueError(f"trials is {trials}, but a space of lists is a grid, which runs all its points; omit trials")
    if trials is not None and trials < 1:
        raise ValueError(f"trials is {trials}; expected at least 1")
    held, score, judged = _held_out(fields, trusted)
    fields = {key: value for key, value in fields.items() if key not in ("validation", "validation_labels")}
    plan = Plan(fields, parsed, held, judged, score, seed, prune and not parsed.is_grid)
    count = len(plan.points) if plan.points is not None else trials or TRIALS
    plan = replace(plan, trials=count, seeds=tuple(dict.fromkeys(seeds)), where=where)
    if "evaluate_every" not in fields and "evaluate_every" not in parsed.text:
        plan = replace(plan, fields={**fields, "evaluate_every": max(1, plan.iterations // 10)})
    check_plan(plan)
    return plan


def check_plan(plan: Plan) -> None:
    """Raise ValueError if a run of the plan is invalid.

    For losses and methods only the names of arguments are checked here; `check_buildable` checks the values, on data.
    """
    for corner in plan.space.corners():
        try:
            _check_objective(plan.run_of(corner))
        except (TypeError, ValueError) as error:
            raise invalid_run(plan, error) from error


def invalid_run(plan: Plan, error: Exception) -> ValueError:
    """Return the error to raise for an invalid run of a plan."""
    return ValueError(f"space {plan.space.text!r} has an invalid run: {error}")


def _check_objective(run: Run) -> None:
    from reweigh.criterion import Criterion
    from reweigh.lab.objectives import check_plain_arguments, class_of
    from reweigh.lab.weightings import weighting_from

    if run.weighting is not None:
        weighting = weighting_from(at_step(parse(run.weighting), 0, run.iterations))
        Criterion(weighting, normalise=None if run.normalise == "none" else run.normalise)
    elif run.loss is not None:
        loss = at_step(parse(run.loss), 0, run.iterations)
        check_plain_arguments(class_of("loss", loss.name), loss)
    elif run.method is not None:
        method = parse(run.method)
        check_plain_arguments(class_of("method", method.name), method)


def _check_disjoint(fields: Mapping[str, Any], space: Space) -> None:
    """Raise ValueError for fields that are both fixed and in the space."""
    for branch in space.branches:
        given = [name for name in OBJECTIVES if name in fields]
        if branch.objective is not None and given:
            raise ValueError(f"the space is about {branch.objective}, and {given[0]} is passed too; omit one of them")
        for name in branch.fields:
            if name in ("validation", "validation_labels", "test_data", "data", "iterations"):
                raise ValueError(f"{name} cannot be in the space, as its trials would not be comparable")
            if name in fields:
                raise ValueError(f"{name} is both passed and in the space; omit one of them")


def _held_out(fields: Mapping[str, Any], trusted: str | None) -> tuple[dict[str, Any], str, str]:
    """Return the fields that hold out the validation set, the column of the score, and the set's description."""
    if trusted is not None:
        for name in ("validation", "validation_labels"):
            if name in fields:
                raise ValueError(f"{name} and a trusted set are both passed; omit one of them")
        if trusted == "test":
            return {}, "test_accuracy", "trusted: the test part of the data set, which no longer is a test"
        return {"test_data": trusted}, "test_accuracy", f"trusted: {trusted}"
    fraction = float(fields.get("validation", HELD_OUT))
    if not fraction > 0:
        raise ValueError("validation is 0; a search needs a validation or a trusted set")
    labels: Labels = fields.get("validation_labels", "clean")
    held: dict[str, Any] = {"validation": fraction} | ({} if labels == "clean" else {"validation_labels": labels})
    part = f"{100 * fraction:g} % of the training part"
    if labels == "noisy":
        return held, "validation_accuracy", f"noisy: {part}, with labels as wrong as those trained on"
    if not truth_known(fields.get("noise")):
        return held, "validation_accuracy", f"as given: {part}, with labels that nobody has checked"
    return held, "validation_accuracy", f"clean: {part}, with its true labels"
