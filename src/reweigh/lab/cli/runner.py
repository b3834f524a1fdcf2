"""Execute runs from a command: one or several, with progress, a clean stop, and the results at the end."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reweigh.lab.cli.exits import BAD_DATA, DIVERGED, FAILED, ExitError, Stop, exit_for
from reweigh.lab.cli.terminal import (
    ShowProgress,
    console,
    echo,
    format_value,
    print_json,
    print_stderr,
    progress,
    table,
)
from reweigh.lab.spec import Run

if TYPE_CHECKING:
    from rich.console import RenderableType

    from reweigh.lab.run import Speed, Update

SHOWN = ("objective", "loss", "test_accuracy", "train_accuracy", "train_accuracy_clean")


def execute_run(
    run: Run,
    root: Path,
    stop: Stop,
    watch: Callable[[Update], None],
    speed: Speed | None = None,
    *,
    single: bool = False,
) -> Path:
    """Execute a run and return its folder; a stop becomes the exit code of its signal.

    If the run is the `single` one of its command, the message names the command that resumes it.
    """
    from reweigh.lab.run import Interrupted, execute

    try:
        return execute(run, root, watch=watch, should_stop=stop, speed=speed)
    except Interrupted as error:
        rest = f"; to resume: reweigh resume {error.folder}"
        if not single:
            rest = f" of {error.folder}; run the same command to resume"
        raise ExitError(stop.code, f"stopped after iteration {error.step}{rest}") from error


def run_one(run: Run, root: Path, speed: Speed | None = None) -> Path:
    """Execute one run with progress; of several processes that share it, only the first one prints."""
    with Stop() as stop, progress("it") as show:
        watch = row_logger(show) if is_first_process() else lambda update: None
        return execute_run(run, root, stop, watch, speed, single=True)


def trainer(stop: Stop, show: ShowProgress) -> Callable[[Run, Path], Path]:
    """Return the function by which a procedure trains a run: it prints the run's name and shows its rows."""

    def train(run: Run, root: Path) -> Path:
        if not (root / run.folder_name() / "result.json").exists():
            print_stderr(run.folder_name())
        return execute_run(run, root, stop, row_logger(show))

    return train


def is_first_process() -> bool:
    """Return whether this process is the only one, or the first of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def row_logger(show: ShowProgress) -> Callable[[Update], None]:
    """Return a watcher that prints a line for every row and note."""

    def watch(update: Update) -> None:
        line = update.note if update.row is None else describe_row(update.row, update.holdout)
        show(update.step, update.total, line=line)

    return watch


def describe_row(row: Mapping[str, Any], holdout: str = "test") -> str:
    """Return the main metrics of a row in a line; `holdout` names the set its test columns were measured on.

    >>> describe_row({"step": 100, "loss": 0.51234, "test_accuracy": 0.9})
    'loss 0.5123, test accuracy 0.9'
    >>> describe_row({"step": 100, "loss": None, "test_accuracy": 0.1}, "noisy hold-out")
    'loss not finite, noisy hold-out accuracy 0.1'
    """
    titles = {name: column_title(name, holdout, row) for name in SHOWN}
    values = {name: format_value(row[name]) for name in SHOWN if row.get(name) is not None}
    if "loss" in row and row["loss"] is None:
        values = {"objective": "not finite"} | values
    return ", ".join(f"{titles[name]} {value}" for name, value in values.items())


def columns_of(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the names of all columns of some rows."""
    return {name for row in rows for name in row}


def column_title(column: str, holdout: str, columns: Collection[str] = ()) -> str:
    """Return the title of a column of the rows, with the name of the hold-out and of the labels it is measured on.

    >>> column_title("test_accuracy", "noisy hold-out"), column_title("p_mean", "noisy hold-out")
    ('noisy hold-out accuracy', 'p mean')
    >>> column_title("train_accuracy", "test"), column_title("train_accuracy", "test", ["train_accuracy_clean"])
    ('training accuracy', 'training accuracy (given labels)')
    >>> column_title("objective", "test", ["objective"]), column_title("loss", "test", ["objective"])
    ('loss', 'training cross entropy')
    """
    if column == "objective":
        return "loss"
    if column == "loss" and "objective" in columns:
        return "training cross entropy"
    if column == "train_accuracy":
        return "training accuracy (given labels)" if "train_accuracy_clean" in columns else "training accuracy"
    if column == "train_accuracy_clean":
        return "training accuracy (true labels)"
    return column.replace("test_", f"{holdout}_").replace("_", " ")


def named_by_holdout(value: Any, holdout: str) -> Any:
    """Rename all keys test_… in a JSON value for a hold-out of another name: unverified labels are no test set.

    >>> named_by_holdout({"final": {"test_accuracy": 0.9}, "best": None}, "noisy hold-out")
    {'final': {'noisy_holdout_accuracy': 0.9}, 'best': None}
    """
    if holdout == "test":
        return value
    if isinstance(value, Mapping):
        prefix = holdout.replace(" ", "_").replace("-", "")
        names = {key: f"{prefix}_{key[5:]}" if key.startswith("test_") else key for key in value}
        return {names[key]: named_by_holdout(item, holdout) for key, item in value.items()}
    return [named_by_holdout(item, holdout) for item in value] if isinstance(value, list) else value


def result_as_json(result: Mapping[str, Any] | None) -> Any:
    """Return a result as `--json` prints it, with the name of the set it was tested on."""
    return None if result is None else named_by_holdout(result, str(result.get("holdout", "test")))


def print_run(folder: Path, as_json: bool) -> None:
    """Print the folder of a finished run and its result; raise `ExitError` if its training diverged."""
    from reweigh.lab.record import read_result

    if not is_first_process():
        return
    result = read_result(folder) or {}
    if as_json:
        print_json({"folder": str(folder), "result": result_as_json(result)})
    else:
        echo(folder)
        print_result(result)
    check_converged([result])


def check_converged(results: Sequence[Mapping[str, Any]]) -> None:
    """Raise `ExitError` with the code of diverged training if any of these finished runs diverged."""
    diverged = sum(result.get("diverged") is not None for result in results)
    if diverged:
        which = f"{diverged} of {len(results)} runs diverged" if len(results) > 1 else "training diverged"
        raise ExitError(DIVERGED, f"{which}; try a smaller --lr")


def print_result(result: Mapping[str, Any]) -> None:
    """Print the table of a result, and a warning if training diverged or stopped learning a class."""
    from reweigh.lab.record import caveat

    console().print(result_table(result))
    if result.get("diverged") is not None:
        echo(f"training diverged: not finite at iteration {result['diverged']}; try a smaller --lr")
    elif warning := caveat(result):
        whose = "its" if len(result["collapsed_classes"]) == 1 else "their"
        remedies = "another --lr, a smaller or a rising beta, --normalise class"
        echo(f"{warning} (mean p of {whose} labels below half of chance); try {remedies}")


def result_table(result: Mapping[str, Any]) -> RenderableType:
    """Return the table of final and best metrics."""
    final, best = result.get("final") or {}, result.get("best") or {}
    holdout = str(result.get("holdout", "test"))
    names = [name for name, value in final.items() if isinstance(value, int | float)]
    return table(
        ("", "final", "best"), [(column_title(name, holdout, final), final[name], best.get(name)) for name in names]
    )


class RunOutcome(NamedTuple):
    """How a run ended: "done", "stopped", or "failed" with a message and the exit code it stands for."""

    folder: Path
    state: str
    problem: str | None = None
    code: int = 0


def run_several(runs: Sequence[Run], root: Path, jobs: int, speed: Speed) -> list[RunOutcome]:
    """Execute runs, `jobs` at a time; when one fails, the others are still finished."""
    from reweigh.lab.run import Interrupted, execute_many

    steps, totals = [0] * len(runs), [run.iterations for run in runs]
    with Stop() as stop, progress("it") as show:

        def watch(number: int, update: Update) -> None:
            steps[number], totals[number] = update.step, update.total
            line = update.note if update.row is None else describe_row(update.row, update.holdout)
            name = runs[number].folder_name()
            show(sum(steps), sum(totals), line=None if line is None else f"{name}: {line}")

        outcomes = execute_many(runs, root, jobs=jobs, watch=watch, should_stop=stop, speed=speed)
    return [
        RunOutcome(outcome.folder, "done")
        if outcome.error is None
        else RunOutcome(outcome.folder, "stopped", str(outcome.error), stop.code)
        if isinstance(outcome.error, Interrupted)
        else failed_run(outcome.folder, outcome.error)
        for outcome in outcomes
    ]


def failed_run(folder: Path, error: Exception) -> RunOutcome:
    """Return the outcome of a run that ended with an error."""
    expected = exit_for(error)
    message = f"{type(error).__name__}: {error}" if expected is None else expected.message
    code = BAD_DATA if expected is not None and expected.code == BAD_DATA else FAILED
    return RunOutcome(folder, "failed", message, code)


def print_runs(outcomes: Sequence[RunOutcome], as_json: bool) -> None:
    """Print the outcome and result of each run; raise `ExitError` unless all are done and none diverged."""
    from reweigh.lab.record import caveat, read_result

    results = [(read_result(each.folder) or {}) if each.state == "done" else {} for each in outcomes]
    if as_json:
        runs = [
            {
                "run": each.folder.name,
                "state": each.state,
                "problem": each.problem,
                "result": result_as_json(result or None),
            }
            for each, result in zip(outcomes, results, strict=True)
        ]
        print_json({"runs": runs})
    else:
        rows = [
            (each.folder.name, each.state, each.problem or caveat(result), holdout_of(result), *accuracies(result))
            for each, result in zip(outcomes, results, strict=True)
        ]
        console().print(table(("run", "state", "problem", "tested on", "final accuracy", "best"), rows, left=4))
        for line in _mean_lines(results):
            echo(line)
    check_done(outcomes)
    check_converged(results)


def check_done(outcomes: Sequence[RunOutcome]) -> None:
    """Raise `ExitError` unless all runs are done."""
    codes = [each.code for each in outcomes if each.code]
    if codes:
        stopped = [each for each in outcomes if each.state == "stopped"]
        message = f"{len(codes) - len(stopped)} of {len(outcomes)} runs failed"
        if stopped:
            message += f", {len(stopped)} were stopped; run the same command to resume them"
        raise ExitError(stopped[0].code if stopped else max(codes), message)


def holdout_of(result: Mapping[str, Any]) -> str | None:
    """Return the name of the set that the accuracies of a result were measured on, None where it has none.

    >>> holdout_of({"final": {"test_accuracy": 0.9}, "holdout": "noisy hold-out"}), holdout_of({})
    ('noisy hold-out', None)
    """
    return None if accuracies(result)[0] is None else str(result.get("holdout", "test"))


def accuracies(result: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the final and the best accuracy of a result, None where it has none.

    >>> accuracies({"final": {"test_accuracy": 0.9}, "best": None})
    (0.9, None)
    """
    final, best = ((result.get(which) or {}).get("test_accuracy") for which in ("final", "best"))
    return final, best


def mean_std(values: Sequence[float]) -> str:
    """Format the mean and standard deviation of shares, in per cent.

    >>> mean_std([0.9, 0.92]), mean_std([0.9])
    ('91.0 ± 1.4', '90.0')
    """
    mean = 100 * statistics.fmean(values)
    return f"{mean:.1f} ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else f"{mean:.1f}"


def _mean_lines(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each kind of hold-out that at least two runs were tested on."""
    for holdout in dict.fromkeys(filter(None, map(holdout_of, results))):
        tested = [result for result in results if holdout_of(result) == holdout]
        converged = [accuracies(result) for result in tested if result.get("diverged") is None]
        if len(tested) < 2:
            continue
        line = "no mean"
        if len(converged) > 1:
            final, best = ([value for value in values if value is not None] for values in zip(*converged, strict=True))
            line = f"mean ± standard deviation in per cent: final {mean_std(final)}, best {mean_std(best)}"
        if diverged := len(tested) - len(converged):
            line += f"; {diverged} diverged {'run' if diverged == 1 else 'runs'} left out"
        yield line if holdout == "test" else f"{holdout}, {line}"
