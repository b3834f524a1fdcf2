"""One sitting at one or more experiments: what is asked for, what is left to do, what is kept and shown at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from paper.carry_out import Ended, Tell, carry_out, gather_findings, within
from paper.finding import Store
from paper.plan import missing, plain_runs, tasks, trials, undone
from paper.quick import quick
from paper.saved import Saved, collect, read_saved, save, shared
from paper.values import Choice, Experiment
from reweigh.errors import DataError
from reweigh.lab.record import summarise
from reweigh.lab.record.files import sha256_of
from reweigh.lab.run.execute import folder_of
from reweigh.lab.spec import Run


@dataclass(frozen=True)
class Asked:
    """What a user asked for.

    Attributes:
        runs: where run folders lie.
        only: phrases, of one of which a cell must hold all words; empty for all. Cells of the first are run first.
        seeds: None for the experiment's own.
        fields: of `Run`, changed in every run, such as device or precision.
        quick: on toy data.
        jobs: runs at a time.
        minutes: after which all stops, to go on another time.
        save: a .json file, or a folder in which each experiment gets one of its name; what is there counts as measured.
        add: files that were saved elsewhere; what they hold counts as measured, too.
    """

    runs: Path
    only: tuple[str, ...] = ()
    seeds: tuple[int, ...] | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    quick: bool = False
    jobs: int = 1
    minutes: float | None = None
    save: Path | None = None
    add: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if self.quick and self.save is not None:
            raise ValueError("quick results mean nothing and are not saved; leave out one of quick and save")
        if self.jobs < 1:
            raise ValueError(f"jobs is {self.jobs}; expected 1 or more")
        if self.minutes is not None and not self.minutes > 0:
            raise ValueError(f"minutes is {self.minutes}; expected more than 0")

    @property
    def root(self) -> Path:
        """Where the runs really lie: quick ones apart."""
        return self.runs / "quick" if self.quick else self.runs

    def of(self, experiment: Experiment) -> Experiment:
        """The whole experiment, as it is to be run."""
        seeds = experiment.seeds if self.seeds is None else self.seeds
        if self.quick:
            experiment = quick(experiment, self.root)
            seeds = seeds[:1] if self.seeds is None else seeds
        fields = dict(self.fields)
        if fields.get("init_file") is not None:  # other weights to start from are another run
            fields["init_hash"] = sha256_of(Path(fields["init_file"]))
        return replace(experiment.adjusted(lambda run: replace(run, **fields)), seeds=seeds)

    def path(self, experiment: Experiment) -> Path | None:
        """Where its results are kept."""
        if self.save is None or self.save.suffix == ".json":
            return self.save
        return self.save / f"{experiment.name}.json"


class Step(NamedTuple):
    """A run that is part of an experiment, and how it stands: done, resumable, missing or broken."""

    run: Run
    state: str
    step: int
    trial: bool


def choose(experiments: Sequence[Experiment], asked: Asked) -> list[Experiment]:
    """The experiments that have a cell left of what is asked for; those without any cells are figures and stay."""
    kept = [each for each in experiments if each.only(*asked.only).cells or not (each.cells or asked.only)]
    for phrase in asked.only:
        if not any(each.only(phrase).cells for each in experiments):
            raise ValueError(f"only is {phrase!r}, and no row, column, protocol or name holds that")
    if len(kept) > 1 and asked.save is not None and asked.save.suffix == ".json":
        names = ", ".join(each.name for each in kept)
        raise ValueError(f"save is {asked.save}, one file, but there are {names}; give a folder, or use only")
    here = {name for each in experiments for name in _runs_of(asked.of(each))}
    for path in asked.add:
        added = read_saved(path)
        if not here & {_unseeded(finding.run) for finding in added.store.values()}:
            names = ", ".join(each.name for each in experiments)
            raise ValueError(f"add is {path}, results of {added.experiment.name}; none of its runs is part of {names}")
    return kept


def _runs_of(experiment: Experiment) -> set[str]:
    """The runs an experiment may consist of, whatever their seeds."""
    plain = [cell.what for cell in experiment.cells if isinstance(cell.what, Run)]
    choices = [cell.what for cell in experiment.cells if isinstance(cell.what, Choice)]
    options = [run for choice in choices for option in choice.options for run in (option.trial, option.run)]
    return {_unseeded(run) for run in (*plain, *options)}


def _unseeded(run: Run) -> str:
    return replace(run, seed=0).folder_name()


def steps(experiment: Experiment, asked: Asked) -> list[Step]:
    """All runs that can be known by now, and how they stand; what depends on a trial is not among them before it."""
    whole = asked.of(experiment)
    chosen = whole.only(*asked.only)
    store = gather_findings(chosen, asked.root, whole.seeds, _known(asked, experiment))
    judged = {run.folder_name() for run in trials(chosen)}
    found = tasks(chosen, whole.seeds, store)
    left = {run.folder_name() for run in missing([*trials(chosen), *plain_runs(undone(found, store))], store)}
    runs = {run.folder_name(): run for run in (*trials(chosen), *plain_runs(found))}
    return [_step(run, asked.root, name in left, name in judged) for name, run in runs.items()]


def _step(run: Run, root: Path, left: bool, trial: bool) -> Step:
    if not left:
        return Step(run, "done", run.iterations, trial)
    folder = folder_of(run, root)
    if not folder.exists():
        return Step(run, "missing", 0, trial)
    summary = summarise(folder)
    return Step(run, summary.state, max(0, summary.step), trial)


def sit(
    experiments: Sequence[Experiment],
    asked: Asked,
    *,
    tell: Tell = lambda number, count, run, update: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[list[Saved], Ended]:
    """Run what is missing of what is asked for, keep the results, and return all there is to show of each."""
    wholes = [asked.of(experiment) for experiment in experiments]
    chosen = [whole.only(phrase) for phrase in asked.only or ("",) for whole in wholes]
    known = {name: found for each in experiments for name, found in _known(asked, each).items()}
    ended = carry_out(chosen, asked.root, jobs=asked.jobs, known=known, tell=tell, should_stop=should_stop)
    return [_kept(experiment, asked, known) for experiment in experiments], ended


def _kept(experiment: Experiment, asked: Asked, known: Store) -> Saved:
    """What is measured of what is asked for, after all that is measured was saved."""
    whole, path = asked.of(experiment), asked.path(experiment)
    if path is not None:
        before = _before(asked, experiment)  # read now: another sitting may have saved to the same file meanwhile
        known = known if before is None else {**before.store, **known}
        save(collect(whole, whole.seeds, gather_findings(whole, asked.root, whole.seeds, known), before), path)
    return _measured(whole.only(*asked.only), asked, known)


def results(experiment: Experiment, asked: Asked) -> Saved:
    """What is measured of what is asked for, without running anything."""
    return _measured(asked.of(experiment).only(*asked.only), asked, _known(asked, experiment))


def _measured(experiment: Experiment, asked: Asked, known: Store) -> Saved:
    return collect(experiment, experiment.seeds, gather_findings(experiment, asked.root, experiment.seeds, known))


def _known(asked: Asked, experiment: Experiment) -> Store:
    """The findings that were saved, here before or elsewhere: a run counts in whatever table it stands."""
    before = _before(asked, experiment)
    beside = [] if asked.save is None or asked.save.suffix == ".json" else _readable(asked.save)
    return shared([*([] if before is None else [before]), *map(read_saved, asked.add), *beside])


def _readable(folder: Path) -> list[Saved]:
    """All results in a folder; what else lies there does not matter."""
    found = []
    for path in sorted(folder.glob("*.json")):
        with suppress(DataError):
            found.append(read_saved(path))
    return found


def _before(asked: Asked, experiment: Experiment) -> Saved | None:
    path = asked.path(experiment)
    return read_saved(path) if path is not None and path.exists() else None


def clock(asked: Asked, should_stop: Callable[[], bool] = lambda: False) -> Callable[[], bool]:
    """The question that ends a sitting: one for all its experiments."""
    return within(asked.minutes, should_stop)
