"""execute(Run): the only place that assembles the parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reweigh.errors import DataError
from reweigh.lab.data.dataset import TEST
from reweigh.lab.nets.registry import check_reads
from reweigh.lab.record import Record, environment, read_rows, summarise
from reweigh.lab.record.files import make_folder
from reweigh.lab.run.evaluation import Evaluation
from reweigh.lab.run.machine import autocast_of, device_of, machine
from reweigh.lab.run.material import Material, gather
from reweigh.lab.run.outcome import finish, has_diverged, header_of, result_of
from reweigh.lab.run.parts import check_augments, epoch_of, input_shape, method_of, net_of, parts_of, rate_of
from reweigh.lab.run.standing import Standing
from reweigh.lab.spec import Run
from reweigh.lab.train.captured import Captured, Speed, fastest, looking, on_stream, usable
from reweigh.lab.train.distributed import Ranks, joined, sharing
from reweigh.lab.train.evaluate import Waiting, at_once
from reweigh.lab.train.loop import Eager, has_dropout, train
from reweigh.lab.train.optimisers import build_optimiser
from reweigh.lab.train.supervisor import heartbeat


class Interrupted(Exception):  # noqa: N818  (it is no error)
    """A run was asked to stop: its checkpoint is written, and executing it again goes on from there."""

    def __init__(self, folder: Path, step: int) -> None:
        super().__init__(f"stopped at iteration {step}; run it again to go on: {folder}")
        self.folder, self.step = folder, step

    def __reduce__(self) -> tuple[type[Interrupted], tuple[Path, int]]:
        return Interrupted, (self.folder, self.step)  # so that it can come from another process


@dataclass(frozen=True)
class Update:
    """What a watcher is told: after every iteration where the run stands, at evaluations a row, seldom a note.

    `holdout` says what the row's test columns were measured on, as in `reweigh.lab.data.dataset.Dataset`.
    """

    step: int
    total: int
    row: dict[str, Any] | None = None
    note: str | None = None
    holdout: str = TEST


def execute(
    run: Run,
    root: Path,
    *,
    watch: Callable[[Update], None] = lambda update: None,
    should_stop: Callable[[], bool] = lambda: False,
    speed: Speed | None = None,
) -> Path:
    """Carry a run out, or on from its last checkpoint; a finished one is returned as it is.

    Started by torchrun, the processes share the run: each takes its part of every batch, and the first one writes.

    Args:
        run: what to do.
        root: where run folders lie; this one's is `root / run.folder_name()`.
        watch: told of progress.
        should_stop: asked after every iteration; True writes a checkpoint and raises `Interrupted`.
        speed: how a GPU is used.

    Returns:
        the run's folder, with run.json, rows.jsonl, model/ and result.json.
    """
    if not isinstance(run, Run):
        raise TypeError(f"run must be a reweigh.Run, got a {type(run).__name__}: Run.from_mapping reads a dict")
    with machine(run), joined(device_of(run)) as ranks, on_stream(device_of(run)):
        for update in updates(run, root, should_stop=should_stop, speed=speed or Speed(), ranks=ranks):
            if update is not None:
                watch(update)
    return folder_of(run, root)


def folder_of(run: Run, root: Path) -> Path:
    """Where a run lies."""
    return Path(root) / run.folder_name()


def updates(
    run: Run,
    root: Path,
    *,
    should_stop: Callable[[], bool],
    speed: Speed,
    ranks: Ranks | None = None,
    gathered: Callable[[], Material] | None = None,
) -> Generator[Update | None]:
    """`execute` as an iterator, one update for each iteration, so that runs can take turns.

    None comes where there is nothing to tell, but another run could go on: between the batches of an evaluation. The
    caller sets torch's switches (`machine`) and the stream, and may have the material gathered ahead.
    """
    ranks, folder = ranks or Ranks(), folder_of(run, root)
    if (folder / "result.json").exists():
        if (problem := summarise(folder).problem) is not None:
            raise DataError(problem)
        return
    device = ranks.device(device_of(run))
    speed = speed.for_run(run, device)
    material = gather(run) if gathered is None else gathered()
    with ExitStack() as stack:

        def open_record(used: Speed) -> Record | None:
            if not ranks.first:
                return None
            make_folder(folder)
            settings = environment(str(device)) | used.described() | {"processes": ranks.size}
            return stack.enter_context(Record(folder, header_of(run, material), settings))

        yield from _carry_out(run, material, device, folder, open_record, should_stop, speed, ranks)


def _carry_out(
    run: Run,
    material: Material,
    device: torch.device,
    folder: Path,
    open_record: Callable[[Speed], Record | None],
    should_stop: Callable[[], bool],
    speed: Speed,
    ranks: Ranks,
) -> Iterator[Update | None]:
    parts = parts_of(run, material, device, ranks)
    net = net_of(run, material, device)
    check_reads(net, run.net, input_shape(material))
    if not (folder / "run.json").exists():  # what was begun so when it was passed over in silence may go on
        check_augments(run, material)
    taught = method_of(run, material, parts.train, parts.trusted, net, ranks)
    method = taught.method
    standing = Standing(method, build_optimiser(method.trainable, run))
    progress, rate, beat, started = standing.progress, rate_of(run), heartbeat(), time.perf_counter()
    eager = Eager(
        method,
        parts.train,
        standing.optimiser,
        total=run.iterations,
        learning_rate=rate,
        autocast=autocast_of(run, device),
        caffe_momentum=run.caffe_momentum,
        dropout_seed=ranks.seed(run.seed) if has_dropout(method.trainable) else None,
        set_parameters=taught.set_parameters,
        share=sharing(method.trainable.parameters(), ranks) if ranks.size > 1 else Tensor.detach,
    )
    # not before all words of the run were understood: a wrong one leaves no folder behind
    record = open_record(usable(eager, speed, taught.obstacle)[0])
    path = folder / "checkpoint.pt"
    if (note := standing.load(path, device)) is not None:
        yield Update(progress.step, run.iterations, note=note)
    ranks.agree(progress.step, "a checkpoint of iteration")  # also: none writes the next before all have read this
    if record is not None:
        due = [step for step in range(1, progress.step + 1) if _is_evaluated(run, step)]  # the best may be among them
        record.rewind(progress.step if note is not None else -1, due)
    size = 1024 if material.train.kind != "files" else 128
    see = looking(speed, eager.autocast, size, lambda: beat(progress.step))
    evaluation = Evaluation(run, material, parts, method, see)
    iteration, told = fastest(eager, speed, taught.obstacle)
    if told is not None:
        yield Update(progress.step, run.iterations, note=told)
    rows = train(
        iteration,
        method,
        progress,
        total=run.iterations,
        epoch=epoch_of(run, material),
        learning_rate=rate,
        evaluate=_nothing if record is None else evaluation.row,
        is_evaluated=partial(_is_evaluated, run),
    )
    lost = False
    for row in rows:
        if isinstance(row, Waiting):  # without a heartbeat: a device that hangs must be noticed
            yield None
            continue
        step = progress.step
        beat(step)
        is_row = row is not None
        if row is not None and record is not None:
            row = evaluation.write(row, record)
            standing.best.consider(row, method.predictor.state_dict())
        note = iteration.note if isinstance(iteration, Captured) else told
        holdout = material.dataset.holdout
        yield Update(step, run.iterations, row=row or None, note=None if note == told else note, holdout=holdout)
        told = note
        if row and has_diverged(row) and not lost:
            lost = True
            why = f"training diverged: loss or outputs are not finite at iteration {step}; try a smaller lr"
            yield Update(step, run.iterations, note=why)
        # ranks ask each other seldom where the question would make a GPU wait
        asked = ranks.size == 1 or device.type != "cuda" or is_row or step % 16 == 0
        stopping = asked and ranks.any(should_stop())
        is_paused = run.checkpoint_every is not None and step % run.checkpoint_every == 0
        if record is not None and (is_row or is_paused or stopping):
            standing.save(path)
        if stopping and step < run.iterations:
            raise Interrupted(folder, step)
    if record is not None:
        seen = at_once(evaluation.of(parts.test)) if parts.test is not None else None
        seconds = round(time.perf_counter() - started, 3)
        result = result_of(run, material, read_rows(folder), standing.best, seen) | {"seconds": seconds}
        finish(run, material, method.predictor, standing.best, result, record)
    ranks.any(False)  # no rank returns before the result is there


def _is_evaluated(run: Run, step: int) -> bool:
    return step % run.evaluate_every == 0 or step == run.iterations


def _nothing(step: int) -> Generator[Waiting, None, dict[str, Any]]:
    """The evaluation of a rank that does not write."""
    yield from ()
    return {}
