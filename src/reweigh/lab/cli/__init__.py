"""The command line, one file per command. Nothing heavy is imported before a command needs it."""

import io
import os
import sys
from pathlib import Path

__all__ = ["main"]


def main() -> None:
    """The entry point; Ctrl-C ends it with a line also while the commands are still being loaded."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by >&-: nobody reads it, and no file may come to stand in its place
            nowhere = Path(os.devnull).open("w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115  (kept)
            setattr(sys, name, nowhere)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # as on standard error: a class or file whose name the terminal cannot show must not end a command
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        from reweigh.lab.cli.app import app

        app(prog_name="reweigh")
    except KeyboardInterrupt:
        print("reweigh: stopped at once", file=sys.stderr)
        sys.exit(130)
