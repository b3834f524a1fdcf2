"""A run or a model by what a user calls it: its folder, its name, or the beginning of its hash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from reweigh.errors import DataError
from reweigh.spec import Run


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


def find_run_or_data(source: str, root: Path, fields: Mapping[str, Any], anyway: Iterable[str] = ()) -> Path | Run:
    """The folder of the run that `source` means; where it is data, the run to find suspects in it with.

    Fields are for data; a run that is there takes only those named in `anyway`.
    """
    from reweigh.data.registry import NAMES, with_root
    from reweigh.suspects import default_run

    is_run = any((folder / "run.json").is_file() for folder in (Path(source), root / source))
    if not is_run and (with_root(source)[0] in NAMES or Path(source).exists()):
        try:
            return default_run(source, dict(fields))
        except TypeError as error:  # a value of the wrong type is a wrong value, on a command line
            raise ValueError(str(error)) from error
    try:
        folder = find_run(source, root)
    except DataError as error:
        raise DataError(f"{error}; nor is it data: a name of reweigh data list, a folder, or a file") from error
    for name in fields:
        if name not in anyway:
            raise ValueError(f"--{name.replace('_', '-')} has no effect on a run that is there; give its data instead")
    return folder


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
