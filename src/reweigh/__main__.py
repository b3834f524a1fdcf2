"""`python -m reweigh`, and the `reweigh` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Start the command line of `reweigh.lab`, or say in one line how to install what it needs."""
    try:
        from reweigh.lab.cli import main as command_line
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] == "reweigh":
            raise
        sys.exit(f"reweigh: the command line needs {error.name}: pip install 'reweigh[lab]'")
    command_line()


if __name__ == "__main__":
    main()
