"""The queue of `python -m paper next`: which runs a limited time on a GPU goes to.

Items are in the order in which a reader asks for them, all with one seed before any with three. `paper.runner` runs an
item and saves its records, so a call may be cut anywhere: finished runs are never repeated, a stopped one resumes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from paper.experiment import Experiment
from paper.findings import Store
from paper.plan import tasks, unfinished
from paper.runner import BatchResult, RunOptions, Watch, deadline, run_experiments
from reweigh.checks import nearest
from reweigh.lab.run.machine import device_of
from reweigh.lab.spec import Run


class Item(NamedTuple):
    """A part of an experiment: the cells that match a phrase, with these seeds; None for the experiment's own."""

    experiment: str
    phrase: str = ""
    seeds: tuple[int, ...] | None = None


ONE, THREE = (0,), (0, 1, 2)
ORDER = (
    Item("tin100_table1", "", ONE),
    Item("cifar10_googlenet", "r = 0.4", ONE),
    Item("cifar10_googlenet", "", ONE),
    Item("cifar10_cifarnet", "r = 0.4", ONE),
    Item("cifar10_cifarnet", "", ONE),
    Item("clean_resnets", "", ONE),
    Item("label_correction", "", ONE),
    Item("auto_digits"),
    Item("auto_cifar10", "symmetric 0.4", ONE),
    Item("ablation-cifar10", "r = 0.4", THREE),
    Item("ablation-cifar10", "", THREE),
    Item("optimisers", "", ONE),
    Item("regularisers-tin100", "", ONE),
    Item("within_classes", "", ONE),
    Item("auto_cifar10", "", THREE),
    Item("auto_tin100", "", THREE),
    Item("cifar10_rates", "", THREE),
    Item("cifar10_rivals", "", THREE),
    Item("label_correction", "", THREE),
    Item("tin100_table1", "symmetric 0.4", THREE),
    Item("tin100_table1", "", THREE),
    Item("clean_resnets", "", THREE),
    Item("optimisers", "", THREE),
    Item("regularisers-tin100", "", THREE),
    Item("within_classes", "", THREE),
    Item("taper_collapse", "", THREE),
    Item("mode_variance", "", ONE),
)


class Fit:
    """Choose the runs that fit into the rest of a time; a run of unknown length is taken, because it resumes."""

    def __init__(self, seconds: float, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._end, self._clock = clock() + seconds, clock
        self._rates = rates(store)
        self.left_out: dict[str, Run] = {}

    def __call__(self, runs: Sequence[Run]) -> list[Run]:
        """Return the runs that fit, in order; the others are added to `left_out`."""
        left, chosen = self._end - self._clock(), []
        for run in runs:
            seconds = expected_seconds(run, self._rates) or 0.0
            if left > 0 and seconds <= left:
                chosen.append(run)
                left -= seconds
            else:
                self.left_out[run.folder_name()] = run
        return chosen


def rates(store: Store) -> dict[tuple[str, str, str], float]:
    """Return seconds per example by net, precision and device, of the fastest finished run of each.

    The fastest had least competition: several at a time take longer each but less in all.
    """
    found: dict[tuple[str, str, str], float] = {}
    for finding in store.values():
        run, environments = finding.run, finding.header.environments
        if finding.seconds and len(environments) == 1 and finding.diverged is None:  # not resumed
            key = run.net, run.precision, str(environments[0].get("device"))
            seconds = finding.seconds / (run.iterations * run.batch_size)
            found[key] = min(seconds, found.get(key, seconds))
    return found


def expected_seconds(run: Run, known: Mapping[tuple[str, str, str], float]) -> float | None:
    """Return how long a run takes alone; None if none like it was recorded on this kind of device."""
    rate = known.get((run.net, run.precision, device_of(run).type))
    return None if rate is None else rate * run.iterations * run.batch_size


def run_next(
    experiments: Iterable[Experiment],
    options: RunOptions,
    *,
    minutes: float,
    order: Sequence[Item] = ORDER,
    watch: Watch | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[dict[Item, BatchResult], list[Run]]:
    """Run what fits of the items in order, and save it.

    Args:
        experiments: those that the items name.
        options: with a folder to save to; `only`, `seeds` and `minutes` are replaced.
        minutes: the time; a run that is not finished by then stops with a checkpoint.
        order: the items.
        watch: called with progress.
        should_stop: called after every iteration; True stops everything with a checkpoint.

    Returns:
        how every item ended that had something to run, and the runs that did not fit.
    """
    by_name = {each.name: each for each in experiments}
    for item in order:
        if item.experiment not in by_name:
            raise ValueError(f"the queue has {item.experiment!r}; {nearest(item.experiment, list(by_name))}")
    if not minutes > 0:
        raise ValueError(f"minutes is {minutes}; expected more than 0")
    stop = deadline(minutes, should_stop)
    saved = options.saved_store(by_name[order[0].experiment])
    fit = Fit(60 * minutes, saved)
    ended: dict[Item, BatchResult] = {}
    for item in order:
        if stop():
            break
        experiment = by_name[item.experiment]
        here = replace(options, only=(item.phrase,) if item.phrase else (), seeds=item.seeds)
        chosen = here.apply(experiment).only(*here.only)
        if not unfinished(tasks(chosen, chosen.seeds, saved), saved):
            continue
        _, ended[item] = run_experiments(
            [experiment], here, should_stop=stop, choose=fit, **({} if watch is None else {"watch": watch})
        )
    return ended, list(fit.left_out.values())
