"""Plan the runs of an experiment: those of every cell and seed, of trials, and of procedures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from paper.experiment import Cell, Choice, Experiment, Procedure
from paper.findings import Finding, Store
from reweigh.lab.record.header import data_versions
from reweigh.lab.spec import Run

SCORE = "validation"


@dataclass(frozen=True)
class Task:
    """One cell with one seed.

    Attributes:
        cell: the cell.
        seed: of its run.
        run: None while its choice is undecided.
        chosen: what was chosen, such as "beta 8"; empty without a choice.
    """

    cell: Cell
    seed: int
    run: Run | None
    chosen: str = ""

    @property
    def name(self) -> str | None:
        """The name of its finding."""
        return None if self.run is None else finding_name(self.run, self.cell.procedure)


def finding_name(run: Run, procedure: Procedure | None) -> str:
    """Return the name of a run's finding: its folder's, with procedure and settings in front."""
    if procedure is None:
        return run.folder_name()
    settings = ", ".join(f"{key}={value}" for key, value in procedure.settings)
    return f"{procedure.name}({settings}) {run.folder_name()}"


def tasks(experiment: Experiment, seeds: Sequence[int], store: Store) -> list[Task]:
    """Return a task for every seed and every cell with a run, seed by seed."""
    found = []
    for seed in seeds:
        for cell in experiment.cells:
            if isinstance(cell.source, Choice):
                chosen, run = decide(cell.source, store) or ("", None)
            elif cell.source is not None:
                chosen, run = "", cell.source
            else:
                continue
            found.append(Task(cell, seed, None if run is None else replace(run, seed=seed), chosen))
    return found


def decide(choice: Choice, store: Store) -> tuple[str, Run] | None:
    """Return the winner of a choice, such as ("beta 8", run); None while a trial is missing or `data_changed`.

    The score is the accuracy on the hold-out at the end of the trial. A diverged trial has none and loses.
    """
    findings = _trial_findings(choice, store)
    if len(findings) < len(choice.options) or data_changed(choice, store) is not None:
        return None
    scores = [finding.metrics.get(SCORE) for finding in findings]
    best = max(range(len(scores)), key=lambda i: (-1.0 if scores[i] is None else scores[i], -i))
    option = choice.options[best]
    return f"{choice.parameter} {option.label}", option.run


def data_changed(choice: Choice, store: Store) -> str | None:
    """Return why the trials of a choice cannot be compared, if they were trained on different data."""
    headers = [finding.header for finding in _trial_findings(choice, store)]
    version = data_versions(headers)
    hashes = [each for header in headers if (each := version(header)) is not None]
    if not hashes:
        return None
    counts = ", ".join(f"{each} ({hashes.count(each)})" for each in dict.fromkeys(hashes))
    return (
        f"the data changed between the trials of {choice.parameter}, so their scores cannot be compared; data hashes "
        f"and numbers of trials: {counts}. Remove the trials on old data and run them again"
    )


def _trial_findings(choice: Choice, store: Store) -> list[Finding]:
    return [store[name] for option in choice.options if (name := option.trial.folder_name()) in store]


def trials(experiment: Experiment) -> list[Run]:
    """Return the trials of all choices, without duplicates; their seed is the cell's own."""
    choices = (cell.source for cell in experiment.cells if isinstance(cell.source, Choice))
    return unique(option.trial for choice in choices for option in choice.options)


def unique(runs: Iterable[Run]) -> list[Run]:
    """Return the runs without duplicates."""
    return list({run.folder_name(): run for run in runs}.values())


def plain_runs(several: Iterable[Task]) -> Iterator[Run]:
    """Yield the runs of tasks that are known before any of them is run."""
    for task in several:
        if task.run is None:
            continue
        if task.cell.procedure is None or task.cell.procedure.name == "label_correction":
            yield task.run
        elif task.cell.procedure.name == "forgetting":
            from reweigh.lab.procedures.forgetting import RATES

            for rate in dict(task.cell.procedure.settings).get("rates", RATES):
                yield replace(task.run, dropout=rate)


def unfinished(several: Iterable[Task], store: Store) -> list[Task]:
    """Return the tasks without a finding, including those that wait for a choice."""
    return [task for task in several if task.name is None or task.name not in store]
