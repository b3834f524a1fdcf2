"""From an experiment to what is left to do: the runs of every cell and seed, less those that are done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from reweigh.experiment.finding import Store
from reweigh.experiment.values import Cell, Choice, Experiment, Procedure
from reweigh.spec import Run

SCORE = "validation"


@dataclass(frozen=True)
class Task:
    """What one cell is with one seed.

    Attributes:
        cell: where it belongs.
        seed: of its run.
        run: None while the choice it depends on has not been made.
        chosen: what was chosen, such as "beta 8"; empty where nothing was to be.
    """

    cell: Cell
    seed: int
    run: Run | None
    chosen: str = ""

    @property
    def name(self) -> str | None:
        """Under which its finding is stored."""
        return None if self.run is None else name_of(self.run, self.cell.procedure)


def name_of(run: Run, procedure: Procedure | None) -> str:
    """The name of a run's finding: its folder's; a procedure's name and settings come before it."""
    if procedure is None:
        return run.folder_name()
    words = [f"{key}={value}" for key, value in procedure.settings]
    return f"{procedure.name}({', '.join(words)}) {run.folder_name()}"


def tasks(experiment: Experiment, seeds: Sequence[int], store: Store) -> list[Task]:
    """One for every cell with something to run and every seed, seed by seed."""
    found = []
    for seed in seeds:
        for cell in experiment.cells:
            if isinstance(cell.what, Choice):
                made = decide(cell.what, store)
                run = None if made is None else made[1]
                chosen = "" if made is None else made[0]
            elif cell.what is not None:
                run, chosen = cell.what, ""
            else:
                continue
            found.append(Task(cell, seed, None if run is None else replace(run, seed=seed), chosen))
    return found


def decide(choice: Choice, store: Store) -> tuple[str, Run] | None:
    """What a choice comes to, such as ("beta 8", run); None while a trial is missing.

    The score is the accuracy on the held-out part at the end of the trial; one that diverged has none and loses.
    """
    scores = []
    for option in choice.options:
        found = store.get(option.trial.folder_name())
        if found is None:
            return None
        scores.append(found.metrics.get(SCORE))
    best = max(range(len(scores)), key=lambda i: (-1.0 if scores[i] is None else scores[i], -i))
    option = choice.options[best]
    return f"{choice.what} {option.label}", option.run


def trials(experiment: Experiment) -> list[Run]:
    """The trials of all choices, each once; their seed is the cell's own, whatever seeds are asked for."""
    choices = (cell.what for cell in experiment.cells if isinstance(cell.what, Choice))
    return once(option.trial for choice in choices for option in choice.options)


def once(runs: Iterable[Run]) -> list[Run]:
    """The runs without repetitions."""
    return list({run.folder_name(): run for run in runs}.values())


def missing(runs: Iterable[Run], store: Store) -> list[Run]:
    """Those that are not done."""
    return [run for run in once(runs) if run.folder_name() not in store]


def plain_runs(found: Iterable[Task]) -> Iterator[Run]:
    """The runs that tasks consist of, as far as they can be known before any is carried out."""
    for task in found:
        if task.run is None:
            continue
        if task.cell.procedure is None or task.cell.procedure.name == "label_correction":
            yield task.run
        elif task.cell.procedure.name == "forgetting":
            from reweigh.procedures.forgetting import RATES

            for rate in dict(task.cell.procedure.settings).get("rates", RATES):
                yield replace(task.run, dropout=rate)


def undone(found: Iterable[Task], store: Store) -> list[Task]:
    """Tasks without a finding, those that wait for a choice among them."""
    return [task for task in found if task.name is None or task.name not in store]
