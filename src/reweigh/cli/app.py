"""`reweigh`: the commands in order, and what they have in common."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from reweigh import __version__
from reweigh.cli import (
    correct,
    data,
    demo,
    edf,
    explore,
    predict,
    procedure,
    report,
    resume,
    retrieve,
    runs,
    search,
    show,
    suspects,
    table,
    train,
)
from reweigh.cli.failures import verdict
from reweigh.cli.terminal import say
from reweigh.errors import DataWarning


class _Root(TyperGroup):
    """Takes --debug anywhere on the line, and ends every command with the right code and sentence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        debug = [arg for arg in args if arg == "--debug"]
        return super().parse_args(ctx, [*debug, *(arg for arg in args if arg != "--debug")])

    def invoke(self, ctx: Any) -> Any:
        try:
            with doubts_said():
                return super().invoke(ctx)
        except BaseException as error:
            found = verdict(error)
            if found is None:
                raise
            if ctx.params.get("debug"):
                traceback.print_exception(error)
            say(f"reweigh: {found.sentence}")
            raise typer.Exit(found.code) from error


@contextmanager
def doubts_said() -> Iterator[None]:
    """While entered, a `DataWarning` is one line on standard error, once, and other warnings are as they were."""
    with warnings.catch_warnings():
        show, said = warnings.showwarning, set[str]()

        def tell(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if not issubclass(category, DataWarning):
                show(message, category, filename, lineno, file, line)
            elif str(message) not in said:  # data are read more than once
                said.add(str(message))
                say(f"warning: {message}")

        warnings.showwarning = tell
        warnings.simplefilter("always", DataWarning)
        yield


def paragraphs(docstring: str) -> str:
    """A docstring with each paragraph on one line, for the terminal to fold.

    >>> paragraphs("One.\\n\\n    Two\\n    lines.\\n    ")
    'One.\\n\\nTwo lines.'
    """
    return "\n\n".join(" ".join(part.split()) for part in docstring.split("\n\n")).strip()


app = typer.Typer(
    cls=_Root,
    name="reweigh",
    help="Design the derivative, not the loss: train on labels that are wrong or unbalanced.",
    epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 bad data, 4 ended by SIGTERM and resumable, 130 Ctrl-C.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"reweigh {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None: ...


def _add(command: Callable[..., None]) -> None:
    app.command(command.__name__, help=paragraphs(command.__doc__ or ""))(command)


_add(demo.demo)
_add(train.train)
_add(resume.resume)
_add(search.search)
_add(table.table)
app.add_typer(procedure.app, name="procedure")
app.add_typer(runs.app, name="runs")
_add(show.show)
_add(edf.edf)
_add(explore.explore)
_add(report.report)
app.add_typer(data.app, name="data")
_add(predict.predict)
_add(retrieve.retrieve)
_add(suspects.suspects)
_add(correct.correct)
