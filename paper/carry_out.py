"""Carrying experiments out: what is missing, in pieces if need be; what is done is never repeated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from paper.finding import Finding, Store, find, without_columns
from paper.plan import Task, data_changed, missing, once, plain_runs, tasks, trials, undone
from paper.procedures import carry_out_procedure, find_procedure
from paper.values import Choice, Experiment
from reweigh.lab.record.files import make_folder
from reweigh.lab.run import Interrupted, Outcome, Update, execute, execute_many
from reweigh.lab.run.execute import folder_of
from reweigh.lab.run.jobs import release_frames
from reweigh.lab.spec import Run

Tell: TypeAlias = Callable[[int, int, Run, Update], None]
"""(number of the run, of how many, the run, its update)"""


@dataclass
class Ended:
    """How it went: what failed and why, and whether it was stopped before its end."""

    failed: dict[str, str] = field(default_factory=dict)
    stopped: bool = False


def gather_findings(experiment: Experiment, root: Path, seeds: Sequence[int], known: Store) -> dict[str, Finding]:
    """All findings of an experiment: those already known, and those in the folders below `root`."""
    store = dict(known)
    for run in trials(experiment):
        if (found := _found(run, root, store)) is not None:
            store[found.name] = without_columns(found)
    for task in tasks(experiment, seeds, store):
        if task.run is None or task.name is None or _is_whole(experiment, store.get(task.name)):
            continue
        procedure = task.cell.procedure
        found = find(folder_of(task.run, root)) if procedure is None else find_procedure(procedure, task.run, root)
        if found is not None:
            store[task.name] = found
    return store


def _is_whole(experiment: Experiment, found: Finding | None) -> bool:
    """Whether there is nothing more to find: a run that is to be scored may have been saved before it was."""
    return found is not None and (experiment.scored != "retrieval" or "mAP" in found.metrics)


def _found(run: Run, root: Path, store: Store) -> Finding | None:
    return None if run.folder_name() in store else find(folder_of(run, root))


def carry_out(
    experiments: Sequence[Experiment],
    root: Path,
    *,
    jobs: int = 1,
    known: Store | None = None,
    tell: Tell = lambda number, count, run, update: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Ended:
    """Run what is missing, in rounds: all that depends on nothing, then all that this decides or makes possible, ...

    So a round has the next run of every procedure, and the runs of all experiments; none waits for another's last ones.

    Args:
        experiments: with their runs as they are to be, also where (device, data_root).
        root: where run folders lie.
        jobs: runs at a time.
        known: findings from elsewhere, whose runs are not repeated here.
        tell: told of progress.
        should_stop: asked after every iteration; True ends all runs with a checkpoint, and the same call goes on.
    """
    ended, tried = Ended(), set[str]()

    def store() -> dict[str, Finding]:
        found = dict(known or {})
        for experiment in experiments:
            found = gather_findings(experiment, root, experiment.seeds, found)
        return found

    def planned(chosen: Sequence[Experiment], now: Store) -> list[Task]:
        return [task for experiment in chosen for task in tasks(experiment, experiment.seeds, now)]

    def fail(run: Run, error: Exception) -> None:
        ended.failed[run.folder_name()] = _sentence(error)

    make_folder(root)
    while not ended.stopped:
        now = store()
        todo = undone(planned(experiments, now), now)
        plain = missing([*plain_runs(todo), *(run for each in experiments for run in trials(each))], now)
        parts = _wanted(todo, root, ended)
        alone = {run.folder_name() for run in plain}
        runs = [run for run in once([*plain, *(part for _, part in parts)]) if run.folder_name() not in tried]
        if not runs:
            break
        for outcome in _execute(runs, root, jobs, tell, should_stop):
            name = outcome.folder.name
            tried.add(name)
            if isinstance(outcome.error, Interrupted):
                ended.stopped = True
            elif outcome.error is not None:
                called = [name] if name in alone else [whole for whole, part in parts if part.folder_name() == name]
                ended.failed |= dict.fromkeys(called, _sentence(outcome.error))
    now = store()
    for experiment in experiments:
        for choice in (cell.what for cell in experiment.cells if isinstance(cell.what, Choice)):
            if (reason := data_changed(choice, now)) is not None:
                ended.failed |= {option.trial.folder_name(): reason for option in choice.options}
    if scored := [experiment for experiment in experiments if experiment.scored == "retrieval"]:
        from paper.scores import score_runs

        runs = [task.run for task in planned(scored, now) if task.run is not None]
        ended.stopped |= not score_runs(runs, root, fail, tell, should_stop)
    return ended


def within(minutes: float | None, should_stop: Callable[[], bool] = lambda: False) -> Callable[[], bool]:
    """A question that is answered with yes once the time is over, or `should_stop` says so."""
    if minutes is None:
        return should_stop
    end = time.monotonic() + 60 * minutes
    return lambda: time.monotonic() >= end or should_stop()


def _execute(runs: Sequence[Run], root: Path, jobs: int, tell: Tell, should_stop: Callable[[], bool]) -> list[Outcome]:
    """The runs, one after the other in this process, or several at a time."""
    if jobs > 1:
        return execute_many(
            runs,
            root,
            jobs=jobs,
            watch=lambda number, update: tell(number, len(runs), runs[number], update),
            should_stop=should_stop,
        )
    outcomes = []
    for number, run in enumerate(runs):
        if should_stop():
            outcomes.append(Outcome(run, folder_of(run, root), Interrupted(folder_of(run, root), 0)))
            break
        error = _alone(run, root, _watching(number, len(runs), run, tell), should_stop)
        outcomes.append(Outcome(run, folder_of(run, root), error))
        if isinstance(error, Interrupted):
            break
    return outcomes


def _watching(number: int, count: int, run: Run, tell: Tell) -> Callable[[Update], None]:
    return lambda update: tell(number, count, run, update)


def _alone(run: Run, root: Path, watch: Callable[[Update], None], should_stop: Callable[[], bool]) -> Exception | None:
    try:
        execute(run, root, watch=watch, should_stop=should_stop)
    except Exception as error:  # whatever ended this run, the others go on, as they do in execute_many
        return release_frames(error)
    return None


class _Wanted(Exception):  # noqa: N818  (it is no error)
    """A procedure can't go on without this run."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.folder_name())
        self.run = run


def _wanted(todo: Iterable[Task], root: Path, ended: Ended) -> list[tuple[str, Run]]:
    """The names of procedures that are not done, each with the run it needs next.

    A procedure that is begun again takes its finished runs as they are, so it can be left wherever one is missing, and
    the runs that several of them need next be carried out together.
    """

    def ask(run: Run, root: Path) -> Path:
        folder = folder_of(run, root)
        if not (folder / "result.json").exists():
            raise _Wanted(run)
        return folder

    found: dict[str, Run] = {}
    for task in todo:
        procedure, run, called = task.cell.procedure, task.run, task.name
        if procedure is None or run is None or called is None or called in found:
            continue
        if called in ended.failed or run.folder_name() in ended.failed:
            continue
        try:
            carry_out_procedure(procedure, run, root, ask)
        except _Wanted as asked:
            found[called] = asked.run
        except Exception as error:
            ended.failed[called] = _sentence(error)
    return list(found.items())


def _sentence(error: Exception) -> str:
    return str(error) or type(error).__name__
