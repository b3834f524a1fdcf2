"""`reweigh`: the commands in order, and what they have in common."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from reweigh import __version__
from reweigh.errors import DataWarning, show_warnings
from reweigh.lab.cli import (
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
    train,
)
from reweigh.lab.cli.failures import verdict
from reweigh.lab.cli.terminal import say


class _Root(TyperGroup):
    """Takes --debug anywhere on the line, and ends every command with the right code and sentence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        debug = [arg for arg in args if arg == "--debug"]
        return super().parse_args(ctx, [*debug, *(arg for arg in args if arg != "--debug")])

    def invoke(self, ctx: Any) -> Any:
        try:
            with show_warnings(say_once()):
                return super().invoke(ctx)
        except BaseException as error:
            found = verdict(error)
            if found is None:
                raise
            if ctx.params.get("debug"):
                traceback.print_exception(error)
            say(f"reweigh: {found.sentence}")
            raise typer.Exit(found.code) from error


def say_once() -> Callable[[DataWarning], None]:
    """Says a warning in one line on standard error, the first time: data are read more than once."""
    said = set[str]()

    def say_new(warning: DataWarning) -> None:
        if str(warning) not in said:
            said.add(str(warning))
            say(f"warning: {warning}")

    return say_new


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
