"""Any experiment in seconds: the same cells on toy data, with tiny nets and a dozen iterations."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from paper.protocols import shortened
from paper.values import Cell, Choice, Experiment, Procedure
from reweigh.lab.record.files import make_folder, replace_file
from reweigh.lab.spec import Expression, Run, parse
from reweigh.lab.spec.expression import Value
from reweigh.streams import numpy_generator

ITERATIONS, BATCH = 12, 50
IMAGES, CLASSES, SIDE = 210, 15, 6
PICTURES, VECTORS = "toy-pictures.npz", "toy-vectors.npz"  # runs are named after them
OPTIONS = 2  # that a choice is left with
TOLD = "quick: toy data, tiny nets and a dozen iterations. It shows that all of it runs; its numbers mean nothing."

# whatever counts epochs or iterations in a method or procedure
_SHORT: Mapping[str, Value] = {
    "warm_up": 1,
    "start": 0,
    "window": 2,
    "soft_from": 1,
    "cooling": 1,
    "mentor_steps": 5,
    "dump_epochs": 1,
    "pretrain": 2,
    "begin": 1,
    "slots": 2,
    "iterations": 4,
    "rates": (0.2, 0.5),
    "mask": ((1,) * CLASSES,) * CLASSES,
    "frames": 2,
}


def quick(experiment: Experiment, folder: Path) -> Experiment:
    """The experiment on toy data in `folder`, with the first cell of every row and of every column, and one seed."""
    write_data(folder)
    rows, columns, kept = set[str](), set[str](), list[Cell]()
    for cell in experiment.cells:
        if cell.row not in rows or cell.column not in columns:
            kept.append(_cell(cell))
        rows.add(cell.row)
        columns.add(cell.column)
    small = replace(experiment, cells=tuple(kept), seeds=experiment.seeds[:1], differs=TOLD, cost=None)
    if experiment.scored is not None:  # the toy data have no videos to retrieve
        small = replace(small, scored=None, metrics=("final", "best"))
    return small.adjusted(lambda run: _tiny(run, folder))


def write_data(folder: Path) -> None:
    """15 classes of small pictures in groups of five, and two classes of vectors."""
    make_folder(folder)
    draws = numpy_generator(0, "quick")
    labels = np.arange(IMAGES) % CLASSES
    base = draws.integers(0, 200, (CLASSES, SIDE, SIDE, 3))
    pictures = (base[labels] + draws.integers(0, 56, (IMAGES, SIDE, SIDE, 3))).astype(np.uint8)
    vectors = (draws.normal(size=(IMAGES, 10)) + (labels % 2)[:, None]).astype(np.float32)
    for name, inputs, targets in ((PICTURES, pictures, labels), (VECTORS, vectors, labels % 2)):
        arrays = {"x_train": inputs, "y_train": targets, "x_test": inputs[::2], "y_test": targets[::2]}
        if name == PICTURES:
            arrays["class_groups"] = np.arange(CLASSES) // 5
        if not (folder / name).exists():
            replace_file(folder / name, lambda file, arrays=arrays: np.savez(file, **arrays))  # type: ignore[misc]  # mypy cannot infer a lambda with a default


def _cell(cell: Cell) -> Cell:
    what, procedure = cell.what, cell.procedure
    if isinstance(what, Choice):
        what = replace(what, options=what.options[:OPTIONS])
    if procedure is not None:
        settings = tuple((key, _SHORT.get(key, value)) for key, value in procedure.settings)
        procedure = Procedure(procedure.name, settings + _missing(procedure))
    return replace(cell, what=what, procedure=procedure)


def _missing(procedure: Procedure) -> tuple[tuple[str, Any], ...]:
    """Settings whose defaults are too long for a dozen iterations."""
    from paper.procedures import kind_of

    given, known = dict(procedure.settings), inspect.signature(kind_of(procedure).function).parameters
    return tuple((key, value) for key, value in _SHORT.items() if key in known and key not in given)


def _tiny(run: Run, folder: Path) -> Run:
    text = run.data == "imdb"
    net = "imdb" if text else _small(run.net)
    run = replace(
        run,
        data=VECTORS if text else PICTURES,
        data_root=str(folder),
        text_vectors="hashed",
        image_size=None,
        net=net,
        augment="none" if net in ("imdb", "mlp-8") else run.augment,
        init_file=None,
        init_hash=None,
        batch_size=BATCH,
    )
    short = shortened(run, ITERATIONS / run.iterations)
    method = None if short.method is None else str(_hasty(parse(short.method)))
    return replace(short, method=method, evaluate_every=ITERATIONS // 2)


def _small(net: str) -> str:
    """A tiny net that has the same parts; those of videos want an image net inside."""
    return {"drsa": "drsa2-resnet20", "cae": "cae-resnet20"}.get(net.partition("-")[0], "mlp-8")


def _hasty(method: Expression) -> Expression:
    """The method with everything that counts epochs or iterations cut down."""
    from reweigh.lab.objectives import class_of, parameters_of

    known = tuple(parameters_of(class_of("method", method.name)))
    given = dict(method.bind(known).kwargs) | {key: value for key, value in _SHORT.items() if key in known}
    return Expression(method.name, (), tuple(given.items()))
