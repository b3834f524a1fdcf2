"""Run the paper's experiments, from a clone of the repository.

    python -m paper run FILE...         run what is missing of experiments, and show our numbers and the paper's
    python -m paper next                run the most important unfinished runs that fit into a time
    python -m paper figure NAME         draw a figure of the paper: 1b, or from runs 2 or grid
    python -m paper page                write docs/results*.md from the records in paper/results

exit codes: 0 done, 1 a run failed, 2 wrong command, 3 bad file, 4 stopped (the same command resumes)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from paper.experiment import Experiment, load_all
from paper.figures import NAMES, Panels, paper_figure, results_figure
from paper.findings import Results
from paper.queue import run_next
from paper.results_page import ROOT, write_pages
from paper.runner import BatchResult, RunOptions, RunState, Watch, deadline, run_experiments, run_states, select
from paper.tables import (
    TextTable,
    block_table,
    blocks,
    choice_results,
    choice_tables,
    mapping,
    markdown,
    notes,
    text_lines,
)
from reweigh.errors import show_warnings
from reweigh.lab.cli.exits import FAILED, STOPPED, Stop, exit_for
from reweigh.lab.cli.paths import check_output
from reweigh.lab.cli.runner import describe_row
from reweigh.lab.cli.terminal import ShowProgress, print_json, print_stderr, progress
from reweigh.lab.figures import write_figures
from reweigh.lab.record.files import replace_file
from reweigh.lab.report import collect, group
from reweigh.lab.run import Update
from reweigh.lab.spec import Run, read_seeds

FIGURE = (".svg", ".png", ".pdf")
RUN_FIELDS = ("device", "data_root", "init_file", "workers", "precision")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    options = _parser().parse_args(arguments)
    say_once = cache(print_stderr)
    try:
        with show_warnings(lambda warning: say_once(f"warning: {warning}")):
            code: int = options.command(options)
    except BaseException as error:
        found = exit_for(error)
        if found is None:
            raise
        print_stderr(f"error: {found.message}")
        return found.code
    return code


def _run(arguments: argparse.Namespace) -> int:
    check_output("--output", arguments.output, (".md",))
    check_output("--figure", arguments.figure, FIGURE)
    fields = {name: value for name in RUN_FIELDS if (value := getattr(arguments, name)) is not None}
    options = RunOptions(
        runs=arguments.runs,
        only=tuple(arguments.only),
        seeds=None if arguments.seeds is None else read_seeds(arguments.seeds),
        fields=fields | ({"deterministic": True} if arguments.deterministic else {}),
        quick=arguments.quick,
        jobs=arguments.jobs,
        minutes=arguments.minutes,
        save=arguments.save,
        add=tuple(arguments.add),
    )
    experiments = select(load_all(arguments.files), options)
    if arguments.dry_run:
        _show_states([(each, state) for each in experiments for state in run_states(each, options)], arguments.json)
        return 0
    with Stop() as stop, progress("it") as show:
        results, batch = run_experiments(
            experiments, options, watch=_watch(show), should_stop=deadline(options.minutes, stop)
        )
    _show(results, arguments.output, arguments.json)
    if arguments.figure is not None:
        panels = [each for result in results if (each := results_figure(result)) is not None]
        if not panels:
            raise ValueError(f"{arguments.figure}: no figure to draw; the experiment has none, or lacks results")
        _write(Panels([figure for each in panels for figure in each.figures], panels[0].columns), arguments.figure)
    return _exit_code(batch)


def _next(arguments: argparse.Namespace) -> int:
    experiments = load_all(sorted((ROOT / "paper" / "experiments").glob("*.py")))
    fields = {name: value for name in ("device", "data_root") if (value := getattr(arguments, name)) is not None}
    options = RunOptions(arguments.runs, fields=fields, jobs=arguments.jobs, save=arguments.save)
    with Stop() as stop, progress("it") as show:
        ended, left_out = run_next(
            experiments, options, minutes=arguments.minutes, watch=_watch(show), should_stop=stop
        )
    for item, batch in ended.items():
        state = (
            "stopped" if batch.stopped else f"{len(batch.failed)} failed" if batch.failed else "done, as far as it fits"
        )
        print(f"{item.experiment} {item.phrase}".strip() + f": {state}")
    print(f"{len(left_out)} runs did not fit into {arguments.minutes:g} minutes")
    failed = {name: reason for batch in ended.values() for name, reason in batch.failed.items()}
    return _exit_code(BatchResult(failed, any(batch.stopped for batch in ended.values())))


def _exit_code(batch: BatchResult) -> int:
    """Report failed and stopped runs, and return the exit code."""
    for reason in dict.fromkeys(batch.failed.values()):
        names = [name for name in batch.failed if batch.failed[name] == reason]
        print_stderr(f"failed: {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {reason}")
    if batch.stopped:
        print_stderr("stopped before the end; the same command resumes")
        return STOPPED
    if batch.failed:
        print_stderr(f"{len(batch.failed)} runs failed")
        return FAILED
    return 0


def _watch(show: ShowProgress) -> Watch:
    """Return a function that shows the progress of several runs as one count of iterations."""
    steps: dict[int, tuple[str, int]] = {}

    def watch(index: int, count: int, run: Run, update: Update) -> None:
        name = run.folder_name()
        if steps.get(index, (name, 0))[0] != name:  # the next round begins
            steps.clear()
        steps[index] = name, update.step
        text = update.note if update.row is None else describe_row(update.row, update.holdout)
        line = None if text is None else f"{index + 1}/{count} {name}: {text}"
        show(sum(step for _, step in steps.values()), count * update.total, line=line)

    return watch


def _show_states(states: Sequence[tuple[Experiment, RunState]], as_json: bool) -> None:
    rows = [(each.name, run.folder_name(), state, step, is_trial) for each, (run, state, step, is_trial) in states]
    if as_json:
        keys = ("experiment", "run", "state", "step", "trial")
        print_json({"runs": [dict(zip(keys, row, strict=True)) for row in rows]})
        return
    texts = [(name, run, "trial" * is_trial, state, str(step)) for name, run, state, step, is_trial in rows]
    for line in text_lines(TextTable("", ("experiment", "run", "", "state", "last evaluation"), texts), left=4):
        print(line)
    left = sum(state != "done" for _, _, state, _, _ in rows)
    print(f"\n{left} of {len(rows)} runs are missing; runs that a trial decides are not counted before it is done")


def _show(results: Sequence[Results], output: Path | None, as_json: bool) -> None:
    shown = [(each.experiment, blocks(each), choice_results(each.experiment, each.store)) for each in results]
    if output is not None:
        pages = [markdown(experiment, found, choice_tables(choices)) for experiment, found, choices in shown]
        content = "\n".join(pages).encode()
        replace_file(output, lambda file: file.write(content))
    if as_json:
        print_json({"experiments": [mapping(*each) for each in shown]})
        return
    for experiment, found, choices in shown:
        print("\n".join([experiment.title, *notes(experiment, found)]))
        for table in (*(block_table(block, experiment.metrics) for block in found), *choice_tables(choices)):
            print("\n".join(["", table.title, *text_lines(table)]))
        print()


def _figure(arguments: argparse.Namespace) -> int:
    check_output("--output", arguments.output, FIGURE)
    groups = []
    if arguments.name != "1b":
        collected = collect(arguments.runs or [Path("runs")])
        for problem in collected.problems:
            print_stderr(f"left out: {problem}")
        groups = group(collected.runs)
    panels = paper_figure(arguments.name, groups, arguments.rate)
    _write(panels, arguments.output)
    return 0


def _page(arguments: argparse.Namespace) -> int:
    for path in write_pages(arguments.root):
        print(path)
    return 0


def _write(panels: Panels, path: Path) -> None:
    write_figures(panels.figures, path, columns=panels.columns)
    print(path)


def _parser() -> argparse.ArgumentParser:
    head, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        "python -m paper", description=head, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="{run,next,figure,page}")

    run = commands.add_parser(
        "run",
        description="Run what is missing of experiments, and show our numbers and the paper's. Finished runs are never "
        "repeated, stopped runs resume. Accuracies are in percent, mean and standard deviation over seeds; the best "
        "accuracy was selected on the test set. A FILE is executed with all your rights: run only files whose author "
        "you trust.",
        epilog='example: python -m paper run paper/experiments/cifar10_headline.py --only "lr 0.1" --jobs 4',
    )
    run.set_defaults(command=_run)
    add = run.add_argument
    add("files", type=Path, nargs="+", metavar="FILE", help="Python file that defines EXPERIMENT; it is executed")
    add(
        "--only",
        action="append",
        default=[],
        metavar="WORDS",
        help="run only cells whose row, column, protocol and name contain these words; may be repeated, cells of the "
        "first one are run first",
    )
    add("--seeds", metavar="0,1,2", help="seeds, instead of the experiment's own")
    add("--quick", action="store_true", help="run on toy data in seconds, to check that everything runs")
    add("--dry-run", action="store_true", help="list the runs and their states; run nothing")
    add("--jobs", type=int, default=1, metavar="N", help="number of parallel runs (default: 1)")
    add("--minutes", type=float, metavar="M", help="stop after this time; the same command resumes")
    add("--output", "-o", type=Path, metavar="FILE", help="write the tables as Markdown, too")
    add(
        "--save",
        type=Path,
        metavar="FILE|FOLDER",
        help="add the results to a .json file, or to one for each experiment in a folder; results in it are not run "
        "again",
    )
    add(
        "--add",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="results files of other machines or experiments, whose runs are not run again",
    )
    add("--figure", type=Path, metavar="FILE", help="draw the experiment's figure (.svg, .png or .pdf; extra: plot)")
    add("--runs", type=Path, default=Path("runs"), metavar="FOLDER", help="directory of run folders (default: runs)")
    add("--device", help="cpu, cuda, cuda:1, ...")
    add("--data-root", metavar="FOLDER", help="directory of the data (default: REWEIGH_DATA)")
    add("--init-file", metavar="FILE", help="initial weights")
    add("--workers", type=int, metavar="N", help="processes that decode image files")
    add("--precision", help="fp32, tf32, bf16 or bf16-logits, instead of the experiment's own")
    add("--deterministic", action="store_true", help="use only deterministic kernels")
    add("--json", action="store_true", help="print one JSON object")

    following = commands.add_parser(
        "next",
        description="Run the most important unfinished runs of the paper that fit into a time, and save their records. "
        "The call may be cut anywhere: finished runs are not repeated, and a stopped one resumes from its folder.",
        epilog="example: python -m paper next --minutes 25 --jobs 4 --device cuda",
    )
    following.set_defaults(command=_next)
    add = following.add_argument
    add("--minutes", type=float, default=25, metavar="M", help="the time (default: 25)")
    add("--jobs", type=int, default=1, metavar="N", help="number of parallel runs (default: 1)")
    add(
        "--save",
        type=Path,
        default=Path("paper/results"),
        metavar="FOLDER",
        help="folder of records, whose runs are not run again (default: paper/results)",
    )
    add("--runs", type=Path, default=Path("runs"), metavar="FOLDER", help="directory of run folders (default: runs)")
    add("--device", help="cpu, cuda, cuda:1, ...")
    add("--data-root", metavar="FOLDER", help="directory of the data (default: REWEIGH_DATA)")

    figure = commands.add_parser("figure", description="Draw a figure of the paper (extra: plot).")
    figure.set_defaults(command=_figure)
    figure.add_argument("name", choices=NAMES, help="1b: densities; 2: dynamics; grid: emphasis mode and variance")
    figure.add_argument("runs", type=Path, nargs="*", metavar="RUNS", help="folders of runs (default: runs)")
    figure.add_argument("--rate", type=float, help="noise rate of figure 2 (default: the most frequent one)")
    figure.add_argument("--output", "-o", type=Path, required=True, metavar="FILE", help=".svg, .png or .pdf")

    page = commands.add_parser("page", description="Write docs/results*.md and their figures from paper/results.")
    page.set_defaults(command=_page)
    page.add_argument("root", type=Path, nargs="?", default=ROOT, help="the repository (default: this one)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
