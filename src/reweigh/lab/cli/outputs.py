"""Where a command may write: looked at before any work begins, so that nothing of the user's is lost at its end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from reweigh.lab.spec import Run, parse

PAGE = (".html", ".htm")
FIGURE = (".svg", ".png", ".pdf")


def check_output(
    option: str,
    path: Path | None,
    suffixes: Sequence[str],
    inputs: Iterable[str | os.PathLike[str] | None] = (),
    begins: str = "",
) -> None:
    """Refuse an output that ends otherwise, as all files of a record do, has no folder, or is or lies in an input.

    With `begins` it replaces only a file that begins so: an earlier output, never a table of the user's.

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
    read = [Path(given) for given in inputs if given is not None]
    if any(path.exists() and given.exists() and path.samefile(given) for given in read):
        raise ValueError(f"{option} is {path}, which is read by this command; give another file")
    check_outside(option, path, read)
    if begins and path.exists() and path.stat().st_size:
        with path.open("rb") as file:
            if file.read(len(begins.encode())) != begins.encode():
                raise ValueError(f"{option} is {path}, which is there and no earlier output; give another file")


def check_outside(option: str, path: Path, folders: Iterable[Path]) -> None:
    """Refuse an output within a folder that is read: the next command would take it for data."""
    for folder in folders:
        if folder.is_dir() and path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{option} is {path}, which lies in {folder}, whose files are data; write it elsewhere")


def files_of(run: Run) -> list[str | os.PathLike[str] | None]:
    """The files that a run reads, as far as its fields name any; of named data, the folder they lie below."""
    from reweigh.lab.data.registry import NAMES, path_of, with_root

    noise = None if run.noise is None else parse(run.noise)
    words = () if noise is None else (*noise.args, *(value for _, value in noise.kwargs))
    labels = [value for value in words if isinstance(value, str)]
    name, root = with_root(run.data, run.data_root)
    own = [path_of(path, root) for path in (run.data, run.test_data) if path is not None]
    return [*([root] if name in NAMES else own), run.init_file, *labels]
