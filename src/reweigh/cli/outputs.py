"""Where a command may write: looked at before any work begins, so that nothing of the user's is lost at its end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from reweigh.spec import Run, parse

PAGE = (".html", ".htm")
FIGURE = (".svg", ".png", ".pdf")


def check_output(
    option: str,
    path: Path | None,
    suffixes: Sequence[str],
    inputs: Iterable[str | os.PathLike[str] | None] = (),
) -> None:
    """Refuse an output file that ends otherwise, as all files of a record do, has no folder, or is one of the inputs.

    >>> check_output("--page", Path("labels.csv"), PAGE)
    Traceback (most recent call last):
        ...
    ValueError: --page is labels.csv; expected a file that ends in .html or .htm
    """
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        allowed = " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))
        raise ValueError(f"{option} is {path}; expected a file that ends in {allowed}")
    if path.is_dir():
        raise ValueError(f"{option} is {path}, a folder; expected a file")
    if not path.parent.is_dir():
        raise ValueError(f"{option} is {path}, but there is no such folder: {path.parent}; make it first")
    for given in inputs:
        if given is not None and path.exists() and Path(given).exists() and path.samefile(given):
            raise ValueError(f"{option} is {path}, which is read by this command; give another file")


def files_of(run: Run) -> list[str | os.PathLike[str] | None]:
    """The files that a run reads, as far as its fields name any."""
    from reweigh.data.registry import with_root

    noise = None if run.noise is None else parse(run.noise)
    words = () if noise is None else (*noise.args, *(value for _, value in noise.kwargs))
    labels = [value for value in words if isinstance(value, str)]
    return [run.data, with_root(run.data, run.data_root)[1], run.test_data, run.init_file, *labels]
