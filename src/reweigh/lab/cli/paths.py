"""Runs, models and files that a command line names: find the inputs, and check the outputs before any work begins."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reweigh.errors import DataError
from reweigh.lab.cli.terminal import print_stderr
from reweigh.lab.spec import Run, describe, parse

PAGE = (".html", ".htm")


def find_run(name: str, root: Path) -> Path:
    """Return the run folder that `name` means: a path, or a folder's name or start of its hash below `root`."""
    for folder in (Path(name), root / name):
        if (folder / "run.json").is_file():
            return folder
    if Path(name).is_dir():
        raise DataError(f"{name}: not a run: it contains no run.json")
    folders = sorted(path.parent for path in root.glob("*/run.json"))
    found = [folder for folder in folders if folder.name.rpartition("-")[2].startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"{len(found)} runs in {root} have a hash that begins with {name!r}; give more of it")
    raise DataError(f"{name}: no such run: not a folder, nor a name or hash in {root} ({len(folders)} runs)")


def find_run_or_data(
    source: str, root: Path, fields: Mapping[str, Any], allowed: Iterable[str] = ()
) -> tuple[Run, Path | None]:
    """Return the run that `source` means and its folder; for data, the run that finds suspects in them, and None.

    `fields` describe a run on data. An existing run accepts only execution fields and those in `allowed`.
    """
    from reweigh.lab.data.registry import NAMES, path_of, with_root
    from reweigh.lab.record import read_header
    from reweigh.lab.run.defaults import choose

    is_run = any((folder / "run.json").is_file() for folder in (Path(source), root / source))
    if not is_run and (with_root(source)[0] in NAMES or path_of(source, fields.get("data_root")).exists()):
        try:
            choice = choose(source, fields, holds_out=False)
            print_stderr(choice.describe())
            return choice.run, None
        except TypeError as error:  # on a command line a value of the wrong type is a wrong value
            raise ValueError(str(error)) from error
    try:
        folder = find_run(source, root)
    except DataError as error:
        raise DataError(f"{error}; nor data: a name from reweigh data list, a folder, or a file") from error
    changes = execution_fields(fields)
    for name in fields:
        if name not in changes and name not in allowed:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} cannot be changed for an existing run; give its data instead")
    run = replace(read_header(folder).run, **changes)
    path = path_of(run.data, run.data_root)
    if with_root(run.data)[0] not in NAMES and not path.exists():
        hint = "" if path.is_absolute() else "; set --data-root to the directory that the relative path starts from"
        raise DataError(f"{path}: not found, but {folder} was trained on it{hint}")
    return run, folder


def execution_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return those fields that decide where and how fast a run is computed; an existing run may change them.

    >>> execution_fields({"data_root": "elsewhere", "lr": 0.1})
    {'data_root': 'elsewhere'}
    """
    return {field.name: fields[field.name] for field in describe() if not field.hashed and field.name in fields}


def find_model(name: str, root: Path) -> Path:
    """Return the model folder that `name` means: one with model.json, the run or the procedure that contains it.

    Of a procedure, such as `correct --retrain`, it is the model of its last run.
    """
    from reweigh.lab.procedures.journal import FILE, read_journal

    folder = Path(name) if (Path(name) / FILE).is_file() else root / name
    if (folder / FILE).is_file():
        runs = read_journal(folder).runs
        name = str(folder.parent / runs[-1][1]) if runs else name
    folder = Path(name)
    if (folder / "model.json").is_file():
        return folder
    run = find_run(name, root)
    if (run / "model" / "model.json").is_file():
        return run / "model"
    if (run / "result.json").is_file():
        raise DataError(f"{run}: finished, but its model is missing; remove the run and train it again")
    raise DataError(f"{run}: has no model yet; finish it with reweigh resume {run}")


def check_output(
    option: str,
    path: Path | None,
    suffixes: Sequence[str],
    inputs: Iterable[str | os.PathLike[str] | None] = (),
    begins: str = "",
) -> None:
    """Raise ValueError unless `path` can be written: a right suffix, an existing folder, not in or over an input.

    With `begins`, an existing file is replaced only if it begins so, which means that reweigh wrote it.

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
        raise ValueError(f"{option} is {path}, but there is no folder {path.parent}; create it first")
    read = [Path(file) for file in inputs if file is not None]
    if any(path.exists() and file.exists() and path.samefile(file) for file in read):
        raise ValueError(f"{option} is {path}, which is an input of this command; choose another file")
    check_outside(option, path, read)
    if begins and path.exists() and path.stat().st_size:
        with path.open("rb") as file:
            if file.read(len(begins.encode())) != begins.encode():
                raise ValueError(
                    f"{option} is {path}, which already exists and was not written by reweigh; choose another file"
                )


def check_outside(option: str, path: Path, folders: Iterable[Path]) -> None:
    """Raise ValueError if `path` lies in a folder of data, where the next command would read it."""
    for folder in folders:
        if folder.is_dir() and path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{option} is {path}, inside the data folder {folder}; choose another place")


def input_files(run: Run) -> list[str | os.PathLike[str] | None]:
    """Return the files that the fields of a run name; for a named data set, the folder that contains it."""
    from reweigh.lab.data.registry import NAMES, path_of, with_root

    noise = None if run.noise is None else parse(run.noise)
    words = () if noise is None else (*noise.args, *(value for _, value in noise.kwargs))
    labels = [value for value in words if isinstance(value, str)]
    name, root = with_root(run.data, run.data_root)
    own = [path_of(path, root) for path in (run.data, run.labels, run.test_data) if path is not None]
    return [*([root] if name in NAMES else own), run.init_file, *labels]
