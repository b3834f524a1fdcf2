"""execute(Run): the only place that assembles the parts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reweigh.metrics import per_class_accuracy
from reweigh.noise import label_hash
from reweigh.record import Header, Record, environment, read_rows, summarise
from reweigh.record.files import make_folder
from reweigh.run.material import Material, gather
from reweigh.run.parts import (
    autocast_of,
    batches_of,
    device_of,
    epoch_of,
    input_shape,
    machine,
    method_of,
    net_of,
    order_of,
)
from reweigh.spec import Run, parse
from reweigh.train import checkpoint
from reweigh.train.evaluate import Seen, holdout_row, look, training_row
from reweigh.train.loop import Progress, has_dropout, train
from reweigh.train.model import Card, save_model
from reweigh.train.optimisers import build_optimiser
from reweigh.train.schedules import learning_rate


class Interrupted(Exception):  # noqa: N818  (it is no error)
    """A run was asked to stop: its checkpoint is written, and executing it again goes on from there."""

    def __init__(self, folder: Path, step: int) -> None:
        super().__init__(f"stopped at iteration {step}; run it again to go on: {folder}")
        self.folder, self.step = folder, step


@dataclass(frozen=True)
class Update:
    """What a watcher is told: after every iteration where the run stands, at evaluations a row, seldom a note."""

    step: int
    total: int
    row: dict[str, Any] | None = None
    note: str | None = None


def execute(
    run: Run,
    root: Path,
    *,
    watch: Callable[[Update], None] = lambda update: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Path:
    """Carry a run out, or on from its last checkpoint; a finished one is returned as it is.

    Args:
        run: what to do.
        root: where run folders lie; this one's is `root / run.folder_name()`.
        watch: told of progress.
        should_stop: asked after every iteration; True writes a checkpoint and raises `Interrupted`.

    Returns:
        the run's folder, with run.json, rows.jsonl, model/ and result.json.
    """
    folder = Path(root) / run.folder_name()
    if (folder / "result.json").exists() and summarise(folder).state == "done":
        return folder
    device = device_of(run)
    with machine(run):
        material = gather(run)
        header = _header(run, material)
        make_folder(folder)
        with Record(folder, header, environment(str(device))) as record:
            _carry_out(run, material, device, folder, record, watch, should_stop)
    return folder


def _carry_out(
    run: Run,
    material: Material,
    device: torch.device,
    folder: Path,
    record: Record,
    watch: Callable[[Update], None],
    should_stop: Callable[[], bool],
) -> None:
    batches = batches_of(run, material.train, material, device, order=order_of(run, material.train))
    test = batches_of(run, material.dataset.test, material, device, order=None) if len(material.dataset.test) else None
    held = material.validation
    validation = batches_of(run, held, material, device, order=None) if held is not None else None
    trusted = None
    if held is not None and run.validation_labels == "clean":
        trusted = batches_of(run, held, material, device, order=order_of(run, held))
    method = method_of(run, material, batches, trusted, net_of(run, material, device))
    optimiser = build_optimiser(method.trainable, run)
    autocast, schedule = autocast_of(run, device), parse(run.schedule)
    progress, best, started = Progress(), Best(), time.perf_counter()
    path = folder / "checkpoint.pt"
    if (loaded := checkpoint.load(path, map_location=device)) is not None:
        progress.load_state_dict(loaded.state["progress"])
        method.trainable.load_state_dict(loaded.state["net"])
        optimiser.load_state_dict(loaded.state["optimiser"])
        method.load_state_dict(loaded.state["method"])
        best = Best(**loaded.state["best"])
        watch(Update(progress.step, run.iterations, note=loaded.note or f"going on from iteration {progress.step}"))
    record.rewind(progress.step if loaded is not None else -1)
    size = 1024 if material.train.kind != "files" else 128
    given = torch.from_numpy(material.train.labels.copy())
    clean = None if material.clean is None else torch.from_numpy(material.clean.copy())
    column: list[Tensor] = []  # p of every training example at the evaluation at hand

    def evaluate(step: int) -> dict[str, Any]:
        seen = look(method.predictor, batches, size, autocast, lambda z, y, i: method.weights(z, y, i, step - 1))
        column[:] = [seen.p]
        row = training_row(seen, given, clean, material.dataset.num_classes)
        for name, part in (("test", test), ("validation", validation)):
            if part is not None:
                row |= holdout_row(look(method.predictor, part, size, autocast), part.labels.cpu(), name)
        return row

    def save() -> None:
        state = {
            "progress": progress.state_dict(),
            "net": method.trainable.state_dict(),
            "optimiser": optimiser.state_dict(),
            "method": method.state_dict(),
            "best": vars(best),
        }
        checkpoint.save(path, state)

    stopping = False

    def is_paused(step: int) -> bool:
        nonlocal stopping
        watch(Update(step, run.iterations))
        stopping = should_stop()
        return stopping or (run.checkpoint_every is not None and step % run.checkpoint_every == 0)

    rows = train(
        method,
        batches,
        optimiser,
        progress,
        total=run.iterations,
        epoch=epoch_of(run, material),
        learning_rate=lambda step: learning_rate(run.lr, schedule, step, run.iterations),
        evaluate=evaluate,
        is_evaluated=lambda step: step % run.evaluate_every == 0 or step == run.iterations,
        is_paused=is_paused,
        autocast=autocast,
        caffe_momentum=run.caffe_momentum,
        dropout_seed=run.seed if has_dropout(method.trainable) else None,
    )
    for row in rows:
        if row is not None:
            row = finite(row)
            record.append(row, column[0].numpy() if run.record_p else None)
            best.consider(row, method.predictor.state_dict())
            watch(Update(progress.step, run.iterations, row=row))
            stopping = should_stop()
        save()
        if stopping and progress.step < run.iterations:
            raise Interrupted(folder, progress.step)
    seen = look(method.predictor, test, size, autocast) if test is not None else None
    result = _result(run, material, read_rows(folder), best, seen) | {
        "seconds": round(time.perf_counter() - started, 3)
    }
    card = Card(
        net=run.net,
        class_names=material.dataset.class_names,
        kind=material.dataset.kind,
        shape=input_shape(material),
        normalisation=material.normalisation,
        dropout=run.dropout,
        run=run,
        metrics={key: result[key] for key in ("final", "best", "holdout")},
    )
    save_model(folder / "model", method.predictor, card, best=best.net)
    record.finish(result)
    for spent in (path, checkpoint.previous(path)):
        spent.unlink(missing_ok=True)


@dataclass
class Best:
    """The best net so far, by validation accuracy where there is a validation part, else by test accuracy."""

    score: float = -math.inf
    step: int = -1
    net: dict[str, Tensor] | None = None

    def consider(self, row: dict[str, Any], net: dict[str, Tensor]) -> None:
        score = row.get("validation_accuracy", row.get("test_accuracy"))
        if score is not None and score > self.score:
            self.score, self.step = score, row["step"]
            self.net = {name: tensor.detach().cpu().clone() for name, tensor in net.items()}


def finite(row: dict[str, Any]) -> dict[str, Any]:
    """The row with None where a number is not finite, which JSON has no word for."""
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}


def _header(run: Run, material: Material) -> Header:
    corruption = material.corruption
    details: dict[str, Any] = {
        "name": material.dataset.name,
        "holdout": material.dataset.holdout,
        "class_names": list(material.dataset.class_names),
        "class_counts": np.bincount(material.train.labels, minlength=material.dataset.num_classes).tolist(),
    }
    if corruption is not None:
        details["noise"] = {
            "kind": corruption.kind,
            "rate": corruption.rate,
            "measured": corruption.measured,
            "hash": corruption.hash,
            "counts": corruption.counts.tolist() if corruption.num_classes <= 100 else None,
        }
    return Header(run, material.data_hash, label_hash(material.train.labels), len(material.train), details)


def _result(run: Run, material: Material, rows: list[dict[str, Any]], best: Best, seen: Seen | None) -> dict[str, Any]:
    """Final and best, side by side; best of test checkpoints is what papers print, and is optimistic."""
    final = {key: value for key, value in rows[-1].items() if not isinstance(value, list)}
    scored = [row for row in rows if row.get("test_accuracy") is not None]
    top = max(scored, key=lambda row: row["test_accuracy"], default=None)
    result: dict[str, Any] = {
        "final": final,
        "best": None if top is None else {"step": top["step"], "test_accuracy": top["test_accuracy"]},
        "holdout": material.dataset.holdout,
        "kept": {"step": best.step, "by": "validation" if run.validation > 0 else material.dataset.holdout},
    }
    if seen is not None:
        target = torch.from_numpy(material.dataset.test.labels.copy())
        result["per_class_accuracy"] = per_class_accuracy(seen.predicted, target, material.dataset.num_classes)
    return result
