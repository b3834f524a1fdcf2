"""The command line, one file per command. Nothing heavy is imported before a command needs it."""

import io
import sys

__all__ = ["main"]


def main() -> None:
    """The entry point; Ctrl-C ends it with a line also while the commands are still being loaded."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # as on standard error: a class or file whose name the terminal cannot show must not end a command
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        from reweigh.cli.app import app

        app(prog_name="reweigh")
    except KeyboardInterrupt:
        print("reweigh: stopped at once", file=sys.stderr)
        sys.exit(130)
