"""Run what is missing of experiments: finished runs are never repeated, stopped ones resume."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from paper.experiment import Choice, Experiment
from paper.findings import (
    RETRIEVAL,
    Finding,
    Results,
    Store,
    merged_store,
    read_finding,
    read_results,
    without_columns,
    write_results,
)
from paper.plan import Task, data_changed, plain_runs, tasks, trials, unfinished, unique
from paper.procedures import read_procedure_finding, run_procedure
from paper.quick import quick
from paper.tables import collect
from reweigh.errors import DataError
from reweigh.lab.record import read_result, summarise
from reweigh.lab.record.files import make_folder, sha256_of, write_json
from reweigh.lab.run import Interrupted, Outcome, Update, execute, execute_many
from reweigh.lab.run.execute import folder_of
from reweigh.lab.run.jobs import release_frames
from reweigh.lab.spec import Run

Watch: TypeAlias = Callable[[int, int, Run, Update], None]
"""Progress: (index of the run, number of runs, run, update)."""


def _ignore(index: int, count: int, run: Run, update: Update) -> None:
    pass


def _never() -> bool:
    return False


def _all(runs: Sequence[Run]) -> list[Run]:
    return list(runs)


@dataclass(frozen=True)
class RunOptions:
    """What to run of experiments, and how.

    Attributes:
        runs: directory of run folders.
        only: run the cells that match one of these phrases, those of the first phrase first; empty for all.
        seeds: None for the experiment's own.
        fields: of `Run`, set in every run, such as device or precision.
        quick: run on toy data.
        jobs: number of parallel runs.
        minutes: time limit, after which runs stop with a checkpoint.
        save: results file (.json), or a directory with a file for each experiment; results in it are not run again.
        add: further results files whose runs are not run again.
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
            raise ValueError("quick results are meaningless and are not saved; leave out one of quick and save")
        if self.jobs < 1:
            raise ValueError(f"jobs is {self.jobs}; expected 1 or more")
        if self.minutes is not None and not self.minutes > 0:
            raise ValueError(f"minutes is {self.minutes}; expected more than 0")

    @property
    def root(self) -> Path:
        """The directory of run folders; quick runs have their own."""
        return self.runs / "quick" if self.quick else self.runs

    def apply(self, experiment: Experiment) -> Experiment:
        """Return the experiment, all cells of it, as it is to be run."""
        seeds = experiment.seeds if self.seeds is None else self.seeds
        if self.quick:
            experiment = quick(experiment, self.root)
            seeds = seeds[:1] if self.seeds is None else seeds
        fields = dict(self.fields)
        if fields.get("init_file") is not None:  # other initial weights make another run
            fields["init_hash"] = sha256_of(Path(fields["init_file"]))
        return replace(experiment.map_runs(lambda run: replace(run, **fields)), seeds=seeds)

    def results_file(self, experiment: Experiment) -> Path | None:
        """Return the file that keeps the results of the experiment."""
        if self.save is None or self.save.suffix == ".json":
            return self.save
        return self.save / f"{experiment.name}.json"

    def saved_results(self, experiment: Experiment) -> Results | None:
        """Return the results in that file."""
        path = self.results_file(experiment)
        return read_results(path) if path is not None and path.exists() else None

    def saved_store(self, experiment: Experiment) -> Store:
        """Return all saved findings: a run counts in every table that has it, whatever experiment it was run for."""
        several = list(filter(None, [self.saved_results(experiment)])) + [read_results(path) for path in self.add]
        if self.save is not None and self.save.suffix != ".json":
            for path in sorted(self.save.glob("*.json")):
                with suppress(DataError):  # other files may be in that directory
                    several.append(read_results(path))
        return merged_store(several)


@dataclass
class BatchResult:
    """How a batch of runs ended: what failed and why, and whether it was stopped early."""

    failed: dict[str, str] = field(default_factory=dict)
    stopped: bool = False


class RunState(NamedTuple):
    """A run of an experiment and its state: done, resumable, missing or broken."""

    run: Run
    state: str
    step: int
    is_trial: bool


def select(experiments: Sequence[Experiment], options: RunOptions) -> list[Experiment]:
    """Return the experiments that have selected cells, and those without cells, which are figures.

    Raise ValueError for a phrase or a results file that matches none of them.
    """
    kept = [each for each in experiments if each.only(*options.only).cells or not (each.cells or options.only)]
    for phrase in options.only:
        if not any(each.only(phrase).cells for each in experiments):
            raise ValueError(f"only is {phrase!r}, which matches no row, column, protocol or name")
    if len(kept) > 1 and options.save is not None and options.save.suffix == ".json":
        names = ", ".join(each.name for each in kept)
        raise ValueError(f"save is {options.save}, one file, but there are {names}; give a directory, or use only")
    applied = [options.apply(each) for each in experiments]
    runs = [run for each in applied for run in (*trials(each), *(run for cell in each.cells for run in cell.runs))]
    known = {_unseeded(run) for run in runs}
    for path in options.add:
        added = read_results(path)
        if not known & {_unseeded(finding.run) for finding in added.store.values()}:
            names = ", ".join(each.name for each in experiments)
            raise ValueError(f"add is {path}, results of {added.experiment.name}; none of its runs is part of {names}")
    return kept


def _unseeded(run: Run) -> str:
    return replace(run, seed=0).folder_name()


def run_states(experiment: Experiment, options: RunOptions) -> list[RunState]:
    """Return the runs known so far with their states; those that depend on an unfinished trial are not known."""
    chosen = options.apply(experiment).only(*options.only)
    store = gather_findings(chosen, options.root, options.saved_store(experiment))
    planned = tasks(chosen, chosen.seeds, store)
    left = {run.folder_name() for run in _missing([chosen], unfinished(planned, store), store)}
    trial_names = {run.folder_name() for run in trials(chosen)}
    states = []
    for run in unique([*trials(chosen), *plain_runs(planned)]):
        name, state, step = run.folder_name(), "done", run.iterations
        if name in left:
            state, step, folder = "missing", 0, folder_of(run, options.root)
            if folder.exists():
                summary = summarise(folder)
                state, step = summary.state, max(0, summary.step)
        states.append(RunState(run, state, step, name in trial_names))
    return states


def _missing(experiments: Sequence[Experiment], todo: Iterable[Task], store: Store) -> list[Run]:
    """Return the runs of the tasks, and the trials, that have no finding."""
    runs = unique([*plain_runs(todo), *(run for each in experiments for run in trials(each))])
    return [run for run in runs if run.folder_name() not in store]


def run_experiments(
    experiments: Sequence[Experiment],
    options: RunOptions,
    *,
    watch: Watch = _ignore,
    should_stop: Callable[[], bool] = _never,
    choose: Callable[[Sequence[Run]], list[Run]] = _all,
) -> tuple[list[Results], BatchResult]:
    """Run what is missing, save the results, and return those of the selected cells."""
    planned = [options.apply(experiment) for experiment in experiments]
    chosen = [each.only(phrase) for phrase in options.only or ("",) for each in planned]
    known = {name: finding for each in experiments for name, finding in options.saved_store(each).items()}
    batch = run_missing(
        chosen, options.root, jobs=options.jobs, known=known, watch=watch, should_stop=should_stop, choose=choose
    )
    results = []
    for experiment, prepared in zip(experiments, planned, strict=True):
        path, store = options.results_file(experiment), known
        if path is not None:
            before = options.saved_results(experiment)  # read now: another process may have saved in the meantime
            store = known if before is None else {**before.store, **known}
            findings = gather_findings(prepared, options.root, store)
            write_results(collect(prepared, prepared.seeds, findings, before), path)
        selected = prepared.only(*options.only)
        results.append(collect(selected, selected.seeds, gather_findings(selected, options.root, store)))
    return results, batch


def gather_findings(experiment: Experiment, root: Path, known: Store) -> dict[str, Finding]:
    """Return the known findings and those in the run folders of the experiment."""
    store = dict(known)
    for run in trials(experiment):
        if run.folder_name() not in store and (finding := read_finding(folder_of(run, root))) is not None:
            store[finding.name] = without_columns(finding)
    for task in tasks(experiment, experiment.seeds, store):
        if task.run is None or task.name is None or _is_complete(experiment, store.get(task.name)):
            continue
        if task.cell.procedure is None:
            finding = read_finding(folder_of(task.run, root))
        else:
            finding = read_procedure_finding(task.cell.procedure, task.run, root)
        if finding is not None:
            store[task.name] = finding
    return store


def _is_complete(experiment: Experiment, finding: Finding | None) -> bool:
    """Whether a finding has everything; one may have been saved before retrieval was evaluated."""
    return finding is not None and (experiment.scored != "retrieval" or "mAP" in finding.metrics)


def run_missing(
    experiments: Sequence[Experiment],
    root: Path,
    *,
    jobs: int = 1,
    known: Store | None = None,
    watch: Watch = _ignore,
    should_stop: Callable[[], bool] = _never,
    choose: Callable[[Sequence[Run]], list[Run]] = _all,
) -> BatchResult:
    """Run what is missing, in rounds: all runs that depend on nothing, then those that have become known, and so on.

    A round has the runs of all experiments, and the next run of every procedure.

    Args:
        experiments: with their runs as they are to be run.
        root: directory of run folders.
        jobs: number of parallel runs.
        known: findings whose runs need not be repeated.
        watch: called with progress.
        should_stop: called after every iteration; True stops all runs with a checkpoint, and the same call resumes.
        choose: returns those of a round's runs that are run.
    """
    batch, tried = BatchResult(), set[str]()

    def gather() -> dict[str, Finding]:
        store = dict(known or {})
        for experiment in experiments:
            store = gather_findings(experiment, root, store)
        return store

    make_folder(root)
    while not batch.stopped:
        store = gather()
        todo = unfinished([task for each in experiments for task in tasks(each, each.seeds, store)], store)
        plain = _missing(experiments, todo, store)
        parts = _next_runs(todo, root, batch)
        alone = {run.folder_name() for run in plain}
        left = [run for run in unique([*plain, *(part for _, part in parts)]) if run.folder_name() not in tried]
        tried |= {run.folder_name() for run in left}
        runs = choose(left)
        if not runs:
            break
        for outcome in _execute(runs, root, jobs, watch, should_stop):
            name = outcome.folder.name
            if isinstance(outcome.error, Interrupted):
                batch.stopped = True
            elif outcome.error is not None:
                failed = [name] if name in alone else [each for each, part in parts if part.folder_name() == name]
                batch.failed |= dict.fromkeys(failed, _message(outcome.error))
    store = gather()
    for experiment in experiments:
        for choice in (cell.source for cell in experiment.cells if isinstance(cell.source, Choice)):
            if (reason := data_changed(choice, store)) is not None:
                batch.failed |= {option.trial.folder_name(): reason for option in choice.options}
    scored = [each for each in experiments if each.scored == "retrieval"]
    planned = [task.run for each in scored for task in tasks(each, each.seeds, store) if task.run is not None]
    _score_retrieval(planned, root, batch, watch, should_stop)
    return batch


def deadline(minutes: float | None, should_stop: Callable[[], bool] = _never) -> Callable[[], bool]:
    """Return a function that is True once the minutes are over or `should_stop()` is."""
    if minutes is None:
        return should_stop
    end = time.monotonic() + 60 * minutes
    return lambda: time.monotonic() >= end or should_stop()


def _execute(
    runs: Sequence[Run], root: Path, jobs: int, watch: Watch, should_stop: Callable[[], bool]
) -> list[Outcome]:
    """Execute runs, one after another in this process or several in parallel."""
    count = len(runs)
    if jobs > 1:

        def watch_many(index: int, update: Update) -> None:
            watch(index, count, runs[index], update)

        return execute_many(runs, root, jobs=jobs, watch=watch_many, should_stop=should_stop)
    outcomes: list[Outcome] = []
    for index, run in enumerate(runs):
        folder = folder_of(run, root)
        error: Exception | None = None
        try:
            if should_stop():
                raise Interrupted(folder, 0)
            execute(run, root, watch=partial(watch, index, count, run), should_stop=should_stop)
        except Exception as caught:  # the other runs continue, as in execute_many
            error = release_frames(caught)
        outcomes.append(Outcome(run, folder, error))
        if isinstance(error, Interrupted):
            break
    return outcomes


class _Needed(Exception):  # noqa: N818  (it is no error)
    """Raised where a procedure needs a run that is not done."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.folder_name())
        self.run = run


def _next_runs(todo: Iterable[Task], root: Path, batch: BatchResult) -> list[tuple[str, Run]]:
    """Return the names of unfinished procedures, each with the run that it needs next.

    A procedure uses its finished runs when it is called again. So it is called until it needs a run, which is then
    trained together with the runs of other procedures.
    """

    def need(run: Run, root: Path) -> Path:
        folder = folder_of(run, root)
        if not (folder / "result.json").exists():
            raise _Needed(run)
        return folder

    needed: dict[str, Run] = {}
    for task in todo:
        procedure, run, name = task.cell.procedure, task.run, task.name
        if procedure is None or run is None or name is None or name in needed:
            continue
        if name in batch.failed or run.folder_name() in batch.failed:
            continue
        try:
            run_procedure(procedure, run, root, need)
        except _Needed as raised:
            needed[name] = raised.run
        except Exception as error:
            batch.failed[name] = _message(error)
    return list(needed.items())


def _message(error: Exception) -> str:
    return str(error) or type(error).__name__


def _score_retrieval(
    runs: Sequence[Run], root: Path, batch: BatchResult, watch: Watch, should_stop: Callable[[], bool]
) -> None:
    """Write retrieval scores into the folders of finished runs that have none.

    Diverged runs are skipped: they have no features to rank by. Features are cached, so a stopped evaluation resumes.
    """
    for index, run in enumerate(runs):
        folder = folder_of(run, root)
        result = read_result(folder)
        if result is None or result.get("diverged") is not None or (folder / RETRIEVAL).exists():
            continue
        if should_stop():
            batch.stopped = True
            return
        progress = partial(_retrieval_progress, partial(watch, index, len(runs), run))
        try:
            write_json(folder / RETRIEVAL, retrieval_scores(run, folder, progress))
        except Exception as error:  # the other runs are still scored
            batch.failed[run.folder_name()] = _message(error)


def _retrieval_progress(watch: Callable[[Update], None], done: int, total: int) -> None:
    watch(Update(done, total))


def retrieval_scores(run: Run, folder: Path, progress: Callable[[int, int], None]) -> dict[str, float]:
    """Rank the tracklets of MARS with a run's final model and return mAP and CMC-1, by the official rule."""
    from reweigh.lab.data import registry
    from reweigh.lab.data.tracklets import index_of
    from reweigh.lab.retrieval.retrieve import retrieve
    from reweigh.lab.run.machine import device_of

    found = retrieve(
        folder / "model",
        index_of(run.data, registry.folder_of(run.data, run.data_root)),
        "snippets" if run.net.startswith("cae-") else "mean",
        cache=folder / "features",
        workers=run.workers,
        device=device_of(run),
        progress=progress,
    )
    return {"mAP": found.scores.mean_ap, "CMC-1": float(found.scores.cmc[0])}
