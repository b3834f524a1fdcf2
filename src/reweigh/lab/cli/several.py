"""Several runs under the user's eyes: one progress for all, and a table of how each ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reweigh.lab.cli.demo import spread
from reweigh.lab.cli.engine import summary
from reweigh.lab.cli.failures import BAD_DATA, FAILED, INTERRUPTED, STOPPED, EndedError, verdict
from reweigh.lab.cli.progress import progress
from reweigh.lab.cli.stop import Stop
from reweigh.lab.cli.terminal import console, print_json, table
from reweigh.lab.spec import Run

if TYPE_CHECKING:
    from reweigh.lab.run import Speed, Update


class Ended(NamedTuple):
    """How a run ended: "done", "stopped" on request, or "failed" with a sentence and the exit code it stands for."""

    folder: Path
    state: str
    problem: str | None = None
    code: int = 0


def carry_out_together(runs: Sequence[Run], root: Path, jobs: int, speed: Speed) -> list[Ended]:
    """Execute runs, `jobs` at a time; one that fails does not keep the others from being finished."""
    from reweigh.lab.run import Interrupted, execute_many

    steps, totals = [0] * len(runs), [run.iterations for run in runs]
    with Stop() as stop, progress("it") as tell:

        def watch(number: int, update: Update) -> None:
            steps[number], totals[number] = update.step, update.total
            line = update.note if update.row is None else summary(update.row, update.holdout)
            name = runs[number].folder_name()
            tell(sum(steps), sum(totals), line=None if line is None else f"{name}: {line}")

        outcomes = execute_many(runs, root, jobs=jobs, watch=watch, should_stop=stop, speed=speed)
    code = STOPPED if stop.signal == signal.SIGTERM else INTERRUPTED
    return [
        Ended(outcome.folder, "done")
        if outcome.error is None
        else Ended(outcome.folder, "stopped", str(outcome.error), code)
        if isinstance(outcome.error, Interrupted)
        else failed(outcome.folder, outcome.error)
        for outcome in outcomes
    ]


def failed(folder: Path, error: Exception) -> Ended:
    """A run that an error ended."""
    what = verdict(error)
    sentence = f"{type(error).__name__}: {error}" if what is None else what.sentence
    return Ended(folder, "failed", sentence, BAD_DATA if what is not None and what.code == BAD_DATA else FAILED)


def report_together(ended: Sequence[Ended], as_json: bool) -> None:
    """How each run ended and what it gave; where one did not end well, the exit code says so."""
    from reweigh.lab.record import caveat, read_result

    results = [(read_result(each.folder) or {}) if each.state == "done" else {} for each in ended]
    if as_json:
        told = zip(ended, results, strict=True)
        runs = [
            {"run": each.folder.name, "state": each.state, "problem": each.problem, "result": result or None}
            for each, result in told
        ]
        print_json({"runs": runs})
    else:
        rows = [
            (each.folder.name, each.state, each.problem or caveat(result), measured_on(result), *accuracies(result))
            for each, result in zip(ended, results, strict=True)
        ]
        console().print(table(("run", "state", "problem", "tested on", "final accuracy", "best"), rows, left=4))
        for line in _means(results):
            print(line)
    codes = [each.code for each in ended if each.code]
    if codes:
        stopped = [each for each in ended if each.state == "stopped"]
        sentence = f"{len(codes) - len(stopped)} of {len(ended)} runs failed"
        if stopped:
            sentence += f", {len(stopped)} were stopped; the same command goes on with them"
        raise EndedError(stopped[0].code if stopped else max(codes), sentence)


def measured_on(result: Mapping[str, Any]) -> str | None:
    """What the accuracies of a result are of, None where it has none.

    >>> measured_on({"final": {"test_accuracy": 0.9}, "holdout": "noisy hold-out"}), measured_on({})
    ('noisy hold-out', None)
    """
    return None if accuracies(result)[0] is None else str(result.get("holdout", "test"))


def accuracies(result: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Final and best accuracy of a result, None where it has none.

    >>> accuracies({"final": {"test_accuracy": 0.9}, "best": None})
    (0.9, None)
    """
    final, best = ((result.get(which) or {}).get("test_accuracy") for which in ("final", "best"))
    return final, best


def _means(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each kind of hold-out that two runs or more were tested on: the others have nothing to average."""
    for holdout in dict.fromkeys(filter(None, map(measured_on, results))):
        tested = [result for result in results if measured_on(result) == holdout]
        well = [accuracies(result) for result in tested if result.get("diverged") is None]
        if len(tested) < 2:
            continue
        told = "no mean"
        if len(well) > 1:
            final, best = ([value for value in values if value is not None] for values in zip(*well, strict=True))
            told = f"mean ± standard deviation in per cent: final {spread(final)}, best {spread(best)}"
        if diverged := len(tested) - len(well):
            told += f"; {diverged} diverged {'run' if diverged == 1 else 'runs'} left out"
        yield told if holdout == "test" else f"{holdout}, {told}"
