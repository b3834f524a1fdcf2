"""`reweigh table`: a table or figure of the paper, measured beside reported."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from reweigh.cli.engine import summary
from reweigh.cli.failures import FAILED, INTERRUPTED, STOPPED, EndedError
from reweigh.cli.options import Json, RunsRoot
from reweigh.cli.outputs import FIGURE, check_output
from reweigh.cli.progress import Tell, progress
from reweigh.cli.stop import Stop
from reweigh.cli.terminal import console, print_json, say
from reweigh.cli.terminal import table as grid
from reweigh.spec import Run, read_seeds

if TYPE_CHECKING:
    from reweigh.experiment.carry_out import Ended
    from reweigh.experiment.saved import Saved
    from reweigh.experiment.session import Asked
    from reweigh.experiment.values import Experiment
    from reweigh.run import Update


def table(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Python files that define EXPERIMENT. Executed: trust their authors."),
    ],
    only: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads it at run time
        typer.Option(
            metavar="WORDS",
            help="Only cells whose row, column, protocol and name hold these words. Of several those of the first are "
            "run first.",
        ),
    ] = None,
    seeds: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="0,1,2", help="Seeds, if not the experiment's own."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="On toy data, in seconds: does all of it run?")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the runs and how they stand; run nothing.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 1,
    minutes: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Stop cleanly after this time; the same command goes on."),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", metavar="FILE", help="Write the tables as Markdown, too."),
    ] = None,
    save: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="FILE|FOLDER",
            help="Keep the results with their provenance in a .json file, or one for each experiment in a folder. What "
            "is there already, of whatever experiment, counts as measured and is not run again.",
        ),
    ] = None,
    add: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(
            metavar="FILE", help="Results saved elsewhere, or for a table with the same runs, that count as measured."
        ),
    ] = None,
    figure: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Draw the experiment's figure (.svg, .png or .pdf; extra: plot)."),
    ] = None,
    runs: RunsRoot = Path("runs"),
    device: Annotated[Optional[str], typer.Option(help="cpu, cuda, cuda:1, ...")] = None,  # noqa: UP045
    data_root: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Where the data lie, if not where REWEIGH_DATA says."),
    ] = None,
    init_file: Annotated[Optional[str], typer.Option(help="Weights to start from.")] = None,  # noqa: UP045
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=0, help="Processes that decode image files."),
    ] = None,
    precision: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="fp32, tf32, bf16 or bf16-logits instead of the experiment's own; in a table of its own."),
    ] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Deterministic kernels only; shown as a table of its own.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run what is missing of a table of the paper, and print what was measured beside what was reported.

    A FILE is a Python program and is executed with all your rights, as by python FILE: run only files whose author you
    trust. The paper's own lie in experiments/. Of several files all runs go in one queue. Runs that are done are never
    repeated, those that were cut short go on, and what was measured by different protocols or in different arithmetic
    is never averaged. Accuracies are in percent, mean and standard deviation over seeds; a best one was chosen by
    looking at the test part.

    Example: reweigh table experiments/cifar10_headline.py --only "lr 0.1" --seeds 0,1,2 --jobs 4
    """
    from reweigh.experiment.load import load_all
    from reweigh.experiment.session import Asked, choose, clock

    check_output("--output", output, (".md",))
    check_output("--figure", figure, FIGURE)
    where = {"device": device, "data_root": data_root, "init_file": init_file, "workers": workers}
    fields = {key: value for key, value in (where | {"precision": precision}).items() if value is not None}
    asked = Asked(
        runs=runs,
        only=tuple(only or ()),
        seeds=None if seeds is None else read_seeds(seeds),
        fields=fields | ({"deterministic": True} if deterministic else {}),
        quick=quick,
        jobs=jobs,
        minutes=minutes,
        save=save,
        add=tuple(add or ()),
    )
    experiments = choose(load_all(files), asked)
    if dry_run:
        _show_steps(experiments, asked, as_json)
        return
    with Stop() as stop, progress("it") as tell:
        found, ended = _sit(experiments, asked, tell, clock(asked, stop))
    failed = ended.failed
    _show(found, output, as_json)
    if figure is not None:
        _draw(found, figure)
    for reason in dict.fromkeys(failed.values()):
        names = [name for name in failed if failed[name] == reason]
        say(f"failed: {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {reason}")
    if ended.stopped:
        code = INTERRUPTED if stop.signal == signal.SIGINT else STOPPED
        raise EndedError(code, "stopped before the end; the same command goes on from there")
    if failed:
        raise EndedError(FAILED, f"{len(failed)} runs failed")


def _sit(
    experiments: Sequence[Experiment], asked: Asked, tell: Tell, should_stop: Callable[[], bool]
) -> tuple[list[Saved], Ended]:
    from reweigh.experiment.session import sit

    steps: dict[int, tuple[str, int]] = {}

    def watch(number: int, count: int, run: Run, update: Update) -> None:
        name = run.folder_name()
        if steps.get(number, (name, 0))[0] != name:  # the next stage begins
            steps.clear()
        steps[number] = name, update.step
        line = update.note if update.row is None else summary(update.row, update.holdout)
        done = sum(step for _, step in steps.values())
        tell(done, count * update.total, line=None if line is None else f"{number + 1}/{count} {name}: {line}")

    return sit(experiments, asked, tell=watch, should_stop=should_stop)


def _show(found: Sequence[Saved], output: Path | None, as_json: bool) -> None:
    from reweigh.experiment.judged import grids, judged
    from reweigh.experiment.render import grid_of, mapping, markdown, notes
    from reweigh.record.files import replace_file

    decided = [(saved, judged(saved.experiment, saved.store)) for saved in found]
    if output is not None:
        pages = [markdown(saved.experiment, saved.blocks(), grids(choices)) for saved, choices in decided]
        written = "\n".join(pages).encode()
        replace_file(output, lambda file: file.write(written))
    if as_json:
        told = [
            mapping(saved.experiment, saved.blocks()) | {"choices": [choice._asdict() for choice in choices]}
            for saved, choices in decided
        ]
        print_json({"experiments": told})
        return
    for saved, choices in decided:
        print(saved.experiment.title)
        for note in notes(saved.experiment, saved.blocks()):
            console().print(note)
        for shown in (*(grid_of(block, saved.experiment.metrics) for block in saved.blocks()), *grids(choices)):
            print(f"\n{shown.title}")
            console().print(grid(shown.columns, shown.rows))
        print()


def _draw(found: Sequence[Saved], path: Path) -> None:
    from reweigh.experiment.drawing import panels_of
    from reweigh.report import write

    panels = [panels for saved in found if (panels := panels_of(saved)) is not None]
    if not panels:
        raise ValueError(f"{path}: there is no figure to draw; the experiment has none, or nothing is measured yet")
    write([figure for each in panels for figure in each.figures], path, columns=panels[0].columns)
    print(path)


def _show_steps(experiments: Sequence[Experiment], asked: Asked, as_json: bool) -> None:
    from reweigh.experiment.session import steps

    found = [(experiment, step) for experiment in experiments for step in steps(experiment, asked)]
    if as_json:
        told = [
            {
                "experiment": experiment.name,
                "run": step.run.folder_name(),
                "state": step.state,
                "step": step.step,
                "trial": step.trial,
            }
            for experiment, step in found
        ]
        print_json({"runs": told})
        return
    rows = [
        (experiment.name, step.run.folder_name(), "trial" if step.trial else "", step.state, step.step)
        for experiment, step in found
    ]
    console().print(grid(("experiment", "run", "", "state", "last evaluation"), rows, left=4))
    left = sum(step.state != "done" for _, step in found)
    print(f"\n{left} of {len(found)} runs are left to do; what a trial decides comes after it")
