"""A run or a model by what a user calls it: its folder, its name, or the beginning of its hash."""

from __future__ import annotations

from pathlib import Path

from reweigh.errors import DataError


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


def find_model(name: str, root: Path) -> Path:
    """The model folder that `name` means: one with model.json, or the run that holds it."""
    folder = Path(name)
    if (folder / "model.json").is_file():
        return folder
    model = find_run(name, root) / "model"
    if not (model / "model.json").is_file():
        raise DataError(f"{model.parent}: has no model yet; finish it with reweigh resume {model.parent}")
    return model
