"""`python -m paper FILE ...`: experiments where `reweigh table` is not at hand, as on a bare GPU machine.

A FILE is executed with all rights of its caller: run only files whose author you trust. The exit code is 0 where all is
done, 1 where runs failed, 2 where the command is wrong, 3 where a file is, 4 where the time is over; the same command
goes on from there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from paper.judged import grids, judged
from paper.load import load_all
from paper.render import markdown
from paper.session import Asked, choose, clock, sit
from reweigh.errors import DataError
from reweigh.lab.run import Update
from reweigh.lab.spec import Run, read_seeds

WHERE = ("device", "data_root", "init_file", "precision", "workers")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, keep and print what was measured."""
    try:
        return _carry_out(_options().parse_args(arguments))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3 if isinstance(error, DataError) else 2


def _carry_out(options: argparse.Namespace) -> int:
    asked = Asked(
        runs=options.runs,
        only=tuple(options.only),
        seeds=None if options.seeds is None else read_seeds(options.seeds),
        fields={name: value for name in WHERE if (value := getattr(options, name)) is not None},
        quick=options.quick,
        jobs=options.jobs,
        minutes=options.minutes,
        save=options.save,
        add=tuple(options.add),
    )
    found, ended = sit(choose(load_all(options.files), asked), asked, tell=_say, should_stop=clock(asked))
    for saved in found:
        trials = grids(judged(saved.experiment, saved.store))
        print(markdown(saved.experiment, saved.blocks(), trials), flush=True)
    for name, reason in ended.failed.items():
        print(f"failed: {name}: {reason}", file=sys.stderr)
    return 4 if ended.stopped else int(bool(ended.failed))


def _say(number: int, count: int, run: Run, update: Update) -> None:
    if update.row is not None or update.note is not None:
        told = update.note or f"test accuracy {(update.row or {}).get('test_accuracy')}"
        print(f"{number + 1}/{count} {run.folder_name()} {update.step}/{update.total} {told}", flush=True)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m paper", description=__doc__)
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="file", help="a Python file that defines EXPERIMENT; it is executed"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="cells whose row, column, protocol and name hold these words; of several those of the first come first",
    )
    parser.add_argument("--seeds", help="as in 0,1,2; by default the experiment's own")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where run folders lie")
    parser.add_argument("--save", type=Path, help="a .json file, or a folder for one file an experiment; added to")
    parser.add_argument(
        "--add", type=Path, nargs="*", action="extend", default=[], help="files saved elsewhere that count as measured"
    )
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--minutes", type=float, help="stop cleanly after this time")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ...")
    parser.add_argument("--data-root", help="where the data lie, if not where REWEIGH_DATA says")
    parser.add_argument("--init-file", help="weights to start from")
    parser.add_argument("--precision", help="in place of the experiment's own")
    parser.add_argument("--workers", type=int, help="processes that decode image files")
    parser.add_argument("--quick", action="store_true", help="on toy data, in seconds")
    return parser


if __name__ == "__main__":
    sys.exit(main())
