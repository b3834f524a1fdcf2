"""Run any experiment in seconds: the same cells on toy data, with tiny nets and a dozen iterations."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from paper.experiment import Cell, Choice, Experiment, Procedure
from paper.procedures import procedure_info
from paper.protocols import shortened
from reweigh.lab.record.files import make_folder, replace_file
from reweigh.lab.spec import Expression, Run, parse
from reweigh.lab.spec.expression import Value
from reweigh.streams import numpy_generator

ITERATIONS, BATCH = 12, 50
IMAGES, CLASSES, SIDE = 210, 15, 6
PICTURES, VECTORS = "toy-pictures.npz", "toy-vectors.npz"
OPTIONS = 2  # of a choice
NOTE = "quick: toy data, tiny nets and a dozen iterations. It shows that everything runs; the numbers are meaningless."

# arguments of methods and procedures that would take too long
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
    """Return the first cell of every row and every column, with one seed, on toy data in `folder`."""
    write_data(folder)
    rows, columns, kept = set[str](), set[str](), list[Cell]()
    for cell in experiment.cells:
        if cell.row not in rows or cell.column not in columns:
            kept.append(_cell(cell))
        rows.add(cell.row)
        columns.add(cell.column)
    small = replace(experiment, cells=tuple(kept), seeds=experiment.seeds[:1], differs=NOTE, cost=None)
    if experiment.scored is not None:  # the toy data have no videos
        small = replace(small, scored=None, metrics=("final", "best"))
    return small.map_runs(lambda run: _tiny(run, folder))


def write_data(folder: Path) -> None:
    """Write toy data: 15 classes of small pictures in groups of five, and two classes of vectors."""
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
    source, procedure = cell.source, cell.procedure
    if isinstance(source, Choice):
        source = replace(source, options=source.options[:OPTIONS])
    if procedure is not None:
        parameters = inspect.signature(procedure_info(procedure).function).parameters
        short = {key: value for key, value in _SHORT.items() if key in parameters}
        procedure = Procedure(procedure.name, tuple((dict(procedure.settings) | short).items()))
    return replace(cell, source=source, procedure=procedure)


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
        noise="pair" if run.noise == "asymmetric_cifar10" else run.noise,  # that one is for ten classes
        augment="none" if net in ("imdb", "mlp-8") else run.augment,
        init_file=None,
        init_hash=None,
        batch_size=BATCH,
    )
    short = shortened(run, ITERATIONS / run.iterations)
    method = None if short.method is None else str(_short_method(parse(short.method)))
    return replace(short, method=method, evaluate_every=ITERATIONS // 2)


def _small(net: str) -> str:
    """Return a tiny net of the same kind; nets of videos contain an image net."""
    return {"drsa": "drsa2-resnet20", "cae": "cae-resnet20"}.get(net.partition("-")[0], "mlp-8")


def _short_method(method: Expression) -> Expression:
    from reweigh.lab.objectives import class_of
    from reweigh.lab.weightings import parameters_of

    known = tuple(parameters_of(class_of("method", method.name)))
    given = dict(method.bind(known).kwargs) | {key: value for key, value in _SHORT.items() if key in known}
    return Expression(method.name, (), tuple(given.items()))
