"""Command-line options for the fields of `Run`, generated from `describe()`, and options that commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Optional, Union, get_args, get_origin

import typer

from reweigh.checks import number, optional
from reweigh.lab.spec import Field, describe

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
_GPU = "Speed"
Jobs = Annotated[
    int, typer.Option(min=1, help="Runs at a time: together on one GPU, else as processes.", rich_help_panel=_GPU)
]
Capture = Annotated[
    bool, typer.Option(help="On a GPU, capture each iteration as a CUDA graph and replay it.", rich_help_panel=_GPU)
]
Kernels = Annotated[
    bool, typer.Option(help="Use reweigh's own kernels for small convolutions in bf16.", rich_help_panel=_GPU)
]
Compile = Annotated[
    Optional[bool],  # noqa: UP045 - typer reads it at run time
    typer.Option(
        "--compile/--no-compile",
        help="Compile the net; default: for long runs in bf16.",
        rich_help_panel=_GPU,
    ),
]
RunsRoot = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Directory containing runs.")]

# Fields are in order; each of these starts a panel of the help.
_PANELS = {
    "data": "Data and noise",
    "net": "Net",
    "weighting": "Loss or method",
    "iterations": "Training",
    "evaluate_every": "Record",
}
COMMON = ("data", "label_column", "test_data", "net", "weighting", "method", "iterations", "epochs", "lr")
"""The fields that most users set: the help shows them first, the others by group."""

EXACTLY_ONE = "exactly one of --weighting, --loss, --method"

EPOCHS = Field(
    "epochs", float | None, (), None, optional(number(0, above=True)), True, False, "epochs, instead of iterations"
)
"""An option that `reweigh.lab.run.defaults.choose` replaces by iterations."""

# The fields in which `reweigh.lab.run.defaults.choose` differs from `Run`, and its choice of loss.
DEFAULTS = {
    "features": "none, efficientnet-lite0 for a folder of few pictures if it is installed",
    "image_size": "64, with nets for large images none",
    "net": "mlp-256, for images resnet20",
    "iterations": "40 epochs, at most 20000",
    "batch_size": "128, less for few examples",
    "sampler": "shuffled, balanced if classes are unbalanced",
    "augment": "none, for images pad-crop-flip",
    "lr": "0.03, less for few or wide inputs; for texts 0.3, for images 0.1, with adam 0.001",
    "evaluate_every": "a tenth of the iterations",
    "record_p": "on",
    "record_margins": "on",
}
SUSPECTS_DEFAULTS = DEFAULTS | {"holdout": "0.0: every label is judged"}
DEFAULT_LOSS = "else the method Auto"


def with_fields(
    fields: Sequence[Field], *, defaults: Mapping[str, str] | None = None, loss: str = EXACTLY_ONE
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add one option per field to a command, which receives the options that are set as its argument `fields`.

    Args:
        fields: of `describe()`.
        defaults: the command's own defaults by field, for the help, where they differ from those of `Run`.
        loss: how the loss or method is chosen, for the help.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def wrapper(**values: Any) -> None:
            chosen = {field.name: _pop_value(field, values) for field in fields}
            command(fields={name: value for name, value in chosen.items() if value is not None}, **values)

        signature = inspect.signature(command, eval_str=True)
        own = [parameter for parameter in signature.parameters.values() if parameter.name != "fields"]
        ordered = sorted(fields, key=lambda field: field.name not in COMMON)
        options = [parameter for field in ordered for parameter in _parameters(field, defaults or {}, loss)]
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*options, *own)]
        wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
        wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # mypy lacks it
        return wrapper

    return decorate


def _pop_value(field: Field, values: dict[str, Any]) -> Any:
    """Remove the value of a field from `values` and return it; None if the option is not set."""
    value = values.pop(field.name)
    if option_type(field.type) is not bool:
        return value
    off = values.pop(f"no_{field.name}")
    if value and off:
        raise ValueError(f"--{_dashed(field.name)} and --no-{_dashed(field.name)} contradict each other")
    return True if value else False if off else None


def _parameters(field: Field, defaults: Mapping[str, str], loss: str) -> list[inspect.Parameter]:
    """Return the option of a field; the opposite of a switch is not listed in the help."""
    kind = option_type(field.type)
    choices = f": {', '.join(field.choices)}" if field.choices else ""
    default = f" ({defaults[field.name]})" if field.name in defaults else _default(field.default)
    panel = _panel(field)
    option = typer.Option(
        f"--{_dashed(field.name)}",
        help=field.help[0].upper() + field.help[1:] + choices + default,
        show_default=False,
        metavar="A B" if get_origin(kind) is tuple else None,
        rich_help_panel=None
        if field.name in COMMON
        else f"{panel} ({loss})"
        if panel == _PANELS["weighting"]
        else panel,
        autocompletion=_completion(field),
    )
    if kind is not bool:
        return [_keyword(field.name, kind | None, option, None)]
    opposite = typer.Option(f"--no-{_dashed(field.name)}", hidden=True)
    return [_keyword(field.name, bool, option, False), _keyword(f"no_{field.name}", bool, opposite, False)]


def _keyword(name: str, kind: Any, option: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def option_type(kind: Any) -> Any:
    """Return the option type for a field's type: choices and unions are read as text, which `Run` checks.

    >>> option_type(int | None), option_type(float | str), option_type(tuple[float, float])
    (<class 'int'>, <class 'str'>, tuple[float, float])
    """
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    members = tuple(member for member in members if member is not NoneType)
    plain = len(members) == 1 and (members[0] in (bool, int, float) or get_origin(members[0]) is tuple)
    return members[0] if plain else str


def _default(value: object) -> str:
    if value is MISSING:
        return " (required)"
    if value is None or isinstance(value, bool):
        return ""
    return f" ({' '.join(map(str, value)) if isinstance(value, tuple) else value})"


def _panel(field: Field) -> str:
    panel, name = "", "iterations" if field is EPOCHS else field.name
    for other in describe():
        panel = _PANELS.get(other.name, panel)
        if other.name == name:
            break
    return panel


def _completion(field: Field) -> Callable[[str], list[str]] | None:
    if field.name == "data":
        return _data_names
    if not field.choices:
        return None
    return lambda incomplete: [choice for choice in field.choices if choice.startswith(incomplete)]


def _data_names(incomplete: str) -> list[str]:
    from reweigh.lab.data.registry import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]
