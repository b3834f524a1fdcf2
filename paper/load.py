"""Experiments from a Python file, which is run as the program it is."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from paper.values import Experiment
from reweigh.errors import DataError

NAME = "EXPERIMENT"


def load_all(paths: Iterable[Path]) -> tuple[Experiment, ...]:
    """The experiments of several files, of which no two may have one name; a file that is named twice is read once."""
    found: dict[str, tuple[Path, Experiment]] = {}
    for path in dict.fromkeys(paths):
        for experiment in load(path):
            if (known := found.get(experiment.name)) is not None:
                raise DataError(f"{path}: an experiment called {experiment.name!r} is in {known[0]}, too")
            found[experiment.name] = path, experiment
    return tuple(experiment for _, experiment in found.values())


def load(path: Path) -> tuple[Experiment, ...]:
    """The experiments of a file: what it calls `EXPERIMENT`, one or a list of them.

    The file is executed with all rights of its caller: run only files whose author you trust.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix != ".py":
        raise DataError(f"{path}: an experiment is a Python file, .py")
    try:
        with _beside(path.parent.resolve()):
            found: object = runpy.run_path(str(path)).get(NAME)
    except SyntaxError as error:
        raise DataError(f"{path}, line {error.lineno}: {error.msg}") from error
    several = list(found) if isinstance(found, Sequence) else [found]
    experiments = [each for each in several if isinstance(each, Experiment)]
    if not experiments or len(experiments) < len(several):
        raise DataError(f"{path}: {NAME} must be an Experiment or a list of them, not {type(found).__name__}")
    names = [each.name for each in experiments]
    if len(set(names)) < len(names):
        raise DataError(f"{path}: two of its experiments are called {max(names, key=names.count)!r}")
    return tuple(experiments)


@contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """While entered, modules in the folder can be imported, as by any program in it; nothing of that stays."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and Path(file).resolve().parent == folder:
                del sys.modules[name]
