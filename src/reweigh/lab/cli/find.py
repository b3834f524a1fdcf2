"""A run or a model by what a user calls it: its folder, its name, or the beginning of its hash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from reweigh.errors import DataError
from reweigh.lab.spec import Run, describe


def find_run(name: str, root: Path) -> Path:
    """The run folder that `name` means: a path, or, below `root`, a folder's name or the first digits of its hash."""
    for folder in (Path(name), root / name):
        if (folder / "run.json").is_file():
            return folder
    if Path(name).is_dir():
        raise DataError(f"{name}: not the folder of a run; there is no run.json in it")
    near = sorted(path.parent for path in root.glob("*/run.json"))
    found = [folder for folder in near if folder.name.rpartition("-")[2].startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"{len(found)} runs in {root} have a hash that begins with {name!r}: give more of it")
    raise DataError(f"{name}: no such run, neither as a folder nor by name or hash in {root} ({len(near)} runs)")


def find_run_or_data(
    source: str, root: Path, fields: Mapping[str, Any], anyway: Iterable[str] = ()
) -> tuple[Run, Path | None]:
    """The run that `source` means, and its folder; where it is data, the run to find suspects in it with, and None.

    Fields are for data; a run that is there takes only those that say where or how fast, and those named in `anyway`.
    """
    from reweigh.lab.data.registry import NAMES, path_of, with_root
    from reweigh.lab.record import read_header
    from reweigh.lab.suspects import default_run

    is_run = any((folder / "run.json").is_file() for folder in (Path(source), root / source))
    if not is_run and (with_root(source)[0] in NAMES or path_of(source, fields.get("data_root")).exists()):
        try:
            return default_run(source, dict(fields)), None
        except TypeError as error:  # a value of the wrong type is a wrong value, on a command line
            raise ValueError(str(error)) from error
    try:
        folder = find_run(source, root)
    except DataError as error:
        raise DataError(f"{error}; nor is it data: a name of reweigh data list, a folder, or a file") from error
    places = places_in(fields)
    for name in fields:
        if name not in places and name not in anyway:
            raise ValueError(f"--{name.replace('_', '-')} has no effect on a run that is there; give its data instead")
    run = replace(read_header(folder).run, **places)
    path = path_of(run.data, run.data_root)
    if with_root(run.data)[0] not in NAMES and not path.exists():
        hint = "" if path.is_absolute() else "; --data-root says where a relative path begins"
        raise DataError(f"{path}: not there, but {folder} was trained on it{hint}")
    return run, folder


def places_in(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Of fields of a run, those that say where or how fast, not what: a run that is there may have others.

    >>> places_in({"data_root": "elsewhere", "lr": 0.1})
    {'data_root': 'elsewhere'}
    """
    return {field.name: fields[field.name] for field in describe() if not field.hashed and field.name in fields}


def find_model(name: str, root: Path) -> Path:
    """The model folder that `name` means: one with model.json, or the run that holds it."""
    folder = Path(name)
    if (folder / "model.json").is_file():
        return folder
    run = find_run(name, root)
    if (run / "model" / "model.json").is_file():
        return run / "model"
    if (run / "result.json").is_file():
        raise DataError(f"{run}: is finished, but its model is gone; remove the run and train it again")
    raise DataError(f"{run}: has no model yet; finish it with reweigh resume {run}")
