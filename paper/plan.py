"""From an experiment to what is left to do: the runs of every cell and seed, less those that are done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from paper.finding import Finding, Store
from paper.values import Cell, Choice, Experiment, Procedure
from reweigh.lab.record.header import data_versions
from reweigh.lab.spec import Run

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
    """What a choice comes to, such as ("beta 8", run); None while a trial is missing or `data_changed`.

    The score is the accuracy on the held-out part at the end of the trial; one that diverged has none and loses.
    """
    found = _trials_of(choice, store)
    if len(found) < len(choice.options) or data_changed(choice, store) is not None:
        return None
    scores = [trial.metrics.get(SCORE) for trial in found]
    best = max(range(len(scores)), key=lambda i: (-1.0 if scores[i] is None else scores[i], -i))
    option = choice.options[best]
    return f"{choice.what} {option.label}", option.run


def data_changed(choice: Choice, store: Store) -> str | None:
    """Why the trials of a choice can't be compared: not all were trained on the same data; None where they were."""
    headers = [trial.header for trial in _trials_of(choice, store)]
    version = data_versions(headers)
    hashes = [each for header in headers if (each := version(header)) is not None]
    if not hashes:
        return None
    told = ", ".join(f"{each} in {hashes.count(each)} of them" for each in dict.fromkeys(hashes))
    return (
        f"the data changed between the trials of {choice.what} (their hash begins with {told}), so that their scores "
        "can't be compared; remove the trials on other data than there are now, and run them again"
    )


def _trials_of(choice: Choice, store: Store) -> list[Finding]:
    """The trials that are there, in the order of the options."""
    return [store[name] for option in choice.options if (name := option.trial.folder_name()) in store]


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
            from reweigh.lab.procedures.forgetting import RATES

            for rate in dict(task.cell.procedure.settings).get("rates", RATES):
                yield replace(task.run, dropout=rate)


def undone(found: Iterable[Task], store: Store) -> list[Task]:
    """Tasks without a finding, those that wait for a choice among them."""
    return [task for task in found if task.name is None or task.name not in store]
