"""`reweigh`: all commands, and the options and errors that they share."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from reweigh import __version__
from reweigh.errors import DataWarning, show_warnings
from reweigh.lab.cli import (
    compare,
    correct,
    data,
    demo,
    edf,
    explore,
    export,
    nets,
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
from reweigh.lab.cli.exits import exit_for
from reweigh.lab.cli.terminal import echo, print_stderr

MAX_MESSAGE = 5000  # characters of an error, which may list what is in a file


class _Root(TyperGroup):
    """Accept --debug anywhere on the line, and turn expected errors into an exit code and a message."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        debug = [arg for arg in args if arg == "--debug"]
        return super().parse_args(ctx, [*debug, *(arg for arg in args if arg != "--debug")])

    def invoke(self, ctx: Any) -> Any:
        try:
            with show_warnings(_print_once()):
                return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = plain_reason(error)
            raise
        except BaseException as error:
            end = exit_for(error)
            if end is None:
                raise
            if ctx.params.get("debug"):
                print_stderr("".join(traceback.format_exception(error)).rstrip())
            more = " ..." if len(end.message) > MAX_MESSAGE else ""
            print_stderr(f"reweigh: {end.message[:MAX_MESSAGE]}{more}")
            raise typer.Exit(end.code) from error


_EXPECTED = {"int_parsing": "a whole number", "int_from_float": "a whole number", "float_parsing": "a number"}


def plain_reason(error: typer.BadParameter) -> str:
    """Return what a wrong value should be, and the value, which the error of typer's parser leaves out."""
    parser_error: Any = error.__cause__
    problems = parser_error.errors() if hasattr(parser_error, "errors") else []
    if not problems:
        return error.message
    value = problems[0]["input"]
    if (expected := _EXPECTED.get(problems[0]["type"])) is not None:
        return f"takes {expected}, not {value!r}"
    return f"{error.message}, not {value!r}"


class _Command(TyperCommand):
    """Refuse an option that is given twice, of which the first value would be ignored."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        counts = Counter(arg.partition("=")[0] for arg in args if arg.startswith("-"))
        for parameter in self.params:
            single = not (getattr(parameter, "multiple", False) or getattr(parameter, "is_flag", False))
            for name in parameter.opts if single else ():
                if counts[name] > 1:
                    raise ValueError(
                        f"{name} is given {counts[name]} times; it takes one value{_SEVERAL.get(name, '')}"
                    )
        return super().parse_args(ctx, args)


_SEVERAL = dict.fromkeys(("--weighting", "--loss", "--method"), ": to train several, use reweigh compare")
_SEVERAL["--seed"] = ": for several, use --seeds 0,1,2"

_BRITISH = {"optimizer": "optimiser", "normalize": "normalise"}


def _print_once() -> Callable[[DataWarning], None]:
    """Return a function that prints each warning the first time only, since data are read more than once."""
    printed = set[str]()

    def print_new(warning: DataWarning) -> None:
        if str(warning) not in printed:
            printed.add(str(warning))
            print_stderr(f"warning: {warning}")

    return print_new


def paragraphs(docstring: str) -> str:
    """Join the lines of each paragraph, for the terminal to fold.

    >>> paragraphs("One.\\n\\n    Two\\n    lines.\\n    ")
    'One.\\n\\nTwo lines.'
    """
    return "\n\n".join(" ".join(part.split()) for part in docstring.split("\n\n")).strip()


app = typer.Typer(
    cls=_Root,
    name="reweigh",
    help="Design the derivative, not the loss: train on labels that are wrong or unbalanced.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 bad data, 4 stopped by SIGTERM and resumable, "
    "5 training diverged, 130 Ctrl-C.",
    context_settings={"token_normalize_func": lambda token: _BRITISH.get(token, token)},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        echo(f"reweigh {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False,
) -> None: ...


def _add(command: Callable[..., None]) -> None:
    app.command(command.__name__, cls=_Command, help=paragraphs(command.__doc__ or ""))(command)


_add(demo.demo)
_add(train.train)
_add(compare.compare)
_add(resume.resume)
_add(search.search)
app.add_typer(procedure.app, name="procedure")
app.add_typer(runs.app, name="runs")
_add(show.show)
_add(edf.edf)
_add(explore.explore)
_add(report.report)
app.add_typer(data.app, name="data")
_add(nets.nets)
_add(predict.predict)
_add(export.export)
_add(retrieve.retrieve)
_add(suspects.suspects)
_add(correct.correct)
