"""Errors and a warning about the user's files and environment, not the program."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TextIO


class DataError(ValueError):
    """Raised when a file or data set does not have its format; the message names file, place and expectation."""


class DataWarning(UserWarning):
    """Warns that a data set is readable but probably not as intended; the message names file, values and counts."""


class MissingExtraError(ImportError):
    """Raised when an optional dependency is missing; the message has the pip command that installs it."""


def require(module: str, extra: str) -> Any:
    """Import an optional dependency, or raise MissingExtraError with the command that installs it.

    >>> require("math", extra="plot").sqrt(4.0)
    2.0
    >>> require("no_such_module", extra="plot")
    Traceback (most recent call last):
        ...
    reweigh.errors.MissingExtraError: no_such_module is not installed: pip install 'reweigh[plot]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        top = module.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != top:
            raise  # the module is installed, but an import inside it fails
        raise MissingExtraError(f"{top} is not installed: pip install 'reweigh[{extra}]'") from error


@contextmanager
def show_warnings(show: Callable[[DataWarning], None]) -> Iterator[None]:
    """Pass every `DataWarning` to `show` while entered, also repeated ones; other warnings are not affected."""
    with warnings.catch_warnings():
        show_other = warnings.showwarning

        def show_warning(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, DataWarning):
                show(category(str(message)))
            else:
                show_other(message, category, filename, lineno, file, line)

        warnings.showwarning = show_warning
        warnings.simplefilter("always", DataWarning)
        yield
