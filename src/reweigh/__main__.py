"""Entry point of the `reweigh` command and of `python -m reweigh`."""

from __future__ import annotations

import io
import os
import sys
import traceback
from pathlib import Path
from types import TracebackType


def main() -> None:
    """Run the command line of `reweigh.lab`, or print how to install what it needs."""
    _prepare_streams()
    sys.excepthook = _print_unexpected
    try:
        try:
            from reweigh.lab.cli.app import app
        except ModuleNotFoundError as error:
            from reweigh.lab.cli.exits import LAB, missing_package

            missing = missing_package(error)
            if missing is None:
                raise
            sys.exit(f"reweigh: the command line needs {missing}: {LAB}")
        app(prog_name="reweigh")
    except KeyboardInterrupt:  # also while the commands are being imported
        print("reweigh: interrupted", file=sys.stderr)
        sys.exit(130)


def _print_unexpected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback without control characters, which its message may have from a file."""
    from reweigh.lab.cli.terminal import print_stderr

    print_stderr("".join(traceback.format_exception(kind, error, trace)).rstrip())


def _prepare_streams() -> None:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by >&-; the next file to be opened must not take its place
            nowhere = Path(os.devnull).open("w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115  (kept)
            setattr(sys, name, nowhere)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # as on standard error: a name that the terminal cannot show must not end a command
        sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
