"""Execute a run: set up, train, evaluate, write."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from reweigh.errors import DataError
from reweigh.lab.data.dataset import TEST
from reweigh.lab.methods.protocol import Method
from reweigh.lab.nets.registry import check_reads
from reweigh.lab.own import load_code
from reweigh.lab.record import Record, RecordError, environment, read_rows, summarise
from reweigh.lab.record.files import make_folder
from reweigh.lab.record.posteriors import write_posteriors
from reweigh.lab.run.machine import autocast_of, device_of, machine
from reweigh.lab.run.material import Material, gather
from reweigh.lab.run.memory import activations, check_memory, evaluation_batch
from reweigh.lab.run.outcome import Best, finish, finite, has_diverged, header_of, result_of
from reweigh.lab.run.parts import (
    Batches,
    Parts,
    check_augments,
    epoch_of,
    input_shape,
    mean_objective,
    net_of,
    objective_of,
    parts_of,
    rate_of,
)
from reweigh.lab.spec import Run
from reweigh.lab.train import checkpoint
from reweigh.lab.train.captured import (
    CapturedStep,
    Evaluate,
    Speed,
    make_evaluator,
    make_step,
    own_stream,
    usable_speed,
)
from reweigh.lab.train.distributed import Ranks, gradient_averaging, join_ranks
from reweigh.lab.train.evaluate import holdout_row, training_row
from reweigh.lab.train.optimisers import build_optimiser, restore
from reweigh.lab.train.step import EXCLUSIVE, EagerStep, has_dropout
from reweigh.lab.train.supervisor import heartbeat
from reweigh.metrics import fit_temperature

_GATHERING = threading.Lock()  # the memory for loading one data set must do for all runs of a process


class Interrupted(Exception):  # noqa: N818  (it is no error)
    """A run was stopped on request, after writing a checkpoint; executing it again resumes it."""

    def __init__(self, folder: Path, step: int) -> None:
        super().__init__(f"stopped at iteration {step}; run it again to resume: {folder}")
        self.folder, self.step = folder, step

    def __reduce__(self) -> tuple[type[Interrupted], tuple[Path, int]]:
        return Interrupted, (self.folder, self.step)  # so that another process can send it


@dataclass(frozen=True)
class Update:
    """The progress of a run: one for every iteration, with a row after an evaluation, and rarely with a note.

    `holdout` names what the row's test columns were measured on, as in `reweigh.lab.data.dataset.Dataset`.
    """

    step: int
    total: int
    row: dict[str, Any] | None = None
    note: str | None = None
    holdout: str = TEST


@dataclass
class TrainState:
    """Everything a checkpoint holds; a run that continues from a saved state gives identical results.

    Attributes:
        method: what is trained, with its own state.
        optimiser: over `method.trainable`.
        step: completed iterations.
        loss: the sum of training losses since the last row, or None.
        losses: how many losses are in that sum.
        best: the best net so far.
        recorded: the digests of the record's files.
    """

    method: Method
    optimiser: torch.optim.Optimizer
    step: int = 0
    loss: Tensor | None = None
    losses: int = 0
    best: Best = field(default_factory=Best)
    recorded: dict[str, str] = field(default_factory=dict)

    def advance(self, loss: Tensor) -> None:
        """Count an iteration and its loss."""
        self.step += 1
        # cloned, because a captured step writes every loss to the same memory
        self.loss = loss.detach().clone() if self.loss is None else self.loss + loss.detach()
        self.losses += 1

    def mean_loss(self) -> float:
        """Return the mean training loss since the last call."""
        mean = float("nan") if self.loss is None else float(self.loss) / self.losses
        self.loss, self.losses = None, 0
        return mean

    def save(self, path: Path) -> None:
        """Write the checkpoint at `path`."""
        state = {
            "progress": {"step": self.step, "loss": self.loss, "seen": self.losses},
            "net": self.method.trainable.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "method": self.method.state_dict(),
            "best": vars(self.best),
            "recorded": self.recorded,
        }
        checkpoint.save(path, state)

    def load(self, path: Path, device: torch.device) -> str | None:
        """Load the checkpoint at `path` and return a note for the user, or None if there is no checkpoint."""
        loaded = checkpoint.load(path, map_location=device)
        if loaded is None:
            return None
        progress = loaded.state["progress"]
        self.step, self.loss, self.losses = progress["step"], progress["loss"], progress["seen"]
        self.method.trainable.load_state_dict(loaded.state["net"])
        restore(self.optimiser, loaded.state["optimiser"])
        self.method.load_state_dict(loaded.state["method"])
        self.best = Best(**loaded.state["best"])
        self.recorded = loaded.state.get("recorded", {})  # earlier versions saved none
        return loaded.note or f"resuming at iteration {self.step}"


def execute(
    run: Run,
    root: Path,
    *,
    watch: Callable[[Update], None] = lambda update: None,
    should_stop: Callable[[], bool] = lambda: False,
    speed: Speed | None = None,
) -> Path:
    """Execute a run, or resume it from its last checkpoint; a finished run is returned as it is.

    Started by torchrun, the processes share the run: each takes its part of every batch, and the first one writes.

    Args:
        run: the run.
        root: directory of run folders; this run's folder is `root / run.folder_name()`.
        watch: called with every update.
        should_stop: called after every iteration; True writes a checkpoint and raises `Interrupted`.
        speed: how a GPU is used.

    Returns:
        The run's folder, with run.json, rows.jsonl, model/ and result.json.
    """
    if not isinstance(run, Run):
        raise TypeError(f"run must be a reweigh.Run, got a {type(run).__name__}: Run.from_mapping reads a dict")
    with machine(run), join_ranks(device_of(run)) as ranks, own_stream(device_of(run)):
        return train_run(run, root, watch=watch, should_stop=should_stop, speed=speed or Speed(), ranks=ranks)


def folder_of(run: Run, root: Path) -> Path:
    """Return the folder of a run."""
    return Path(root) / run.folder_name()


def train_run(
    run: Run,
    root: Path,
    *,
    watch: Callable[[Update], None],
    should_stop: Callable[[], bool],
    speed: Speed,
    ranks: Ranks,
) -> Path:
    """`execute`, in a process whose switches (`machine`), process group and CUDA stream are set."""
    folder = folder_of(run, root)
    if (folder / "result.json").exists():
        return _check_finished(folder)

    # Set up. The folder is made last, so that a run with invalid settings leaves none.
    device = ranks.device(device_of(run))
    load_code(run)
    with _GATHERING:
        material = gather(run)
    fitted = replace(run, batch_size=min(run.batch_size, len(material.train)))
    parts = parts_of(fitted, material, device, ranks)
    if run.patience is not None and parts.test is None and parts.validation is None:
        raise ValueError(f"patience is {run.patience}, but there is no test or validation part; use --validation 0.1")
    with EXCLUSIVE:
        net = net_of(run, material, device)
        check_reads(net, run.net, input_shape(material))
        if not (folder / "run.json").exists():  # earlier versions started such runs, and these may finish
            check_augments(run, material)
        kept, largest = activations(net, input_shape(material))
        check_memory(fitted, net, kept, device, ranks.size)
        objective = objective_of(fitted, material, parts.train, parts.trusted, net, ranks)
    method, learning_rate = objective.method, rate_of(run)
    state = TrainState(method, build_optimiser(method.trainable, run))
    eager = EagerStep(
        method,
        parts.train,
        state.optimiser,
        total=run.iterations,
        learning_rate=learning_rate,
        autocast=autocast_of(run, device),
        caffe_momentum=run.caffe_momentum,
        dropout_seed=ranks.seed(run.seed) if has_dropout(method.trainable) else None,
        set_parameters=objective.set_parameters,
        average=gradient_averaging(method.trainable.parameters(), ranks) if ranks.size > 1 else Tensor.detach,
    )
    speed, speed_note = usable_speed(eager, speed.for_run(run, device), objective.obstacle)
    started, beat, epoch = time.perf_counter(), heartbeat(), epoch_of(fitted, material)
    chunk = evaluation_batch(largest, 128 if material.train.kind == "files" else 1024)
    evaluate = make_evaluator(speed, eager.autocast, chunk, lambda: beat(state.step))

    try:
        opened = _open_record(run, material, folder, device, speed, ranks)
    except RecordError:
        if ranks.size > 1 or not (folder / "result.json").exists():
            raise
        watch(Update(run.iterations, run.iterations, note="finished meanwhile by another process"))
        return _check_finished(folder)
    with opened as record:
        # Resume.
        path = folder / "checkpoint.pt"
        resume_note = state.load(path, device)
        if resume_note is not None:
            watch(Update(state.step, run.iterations, note=resume_note))
        ranks.agree(state.step, "a checkpoint of iteration")  # so no rank overwrites it before all have read it
        if record is not None:
            due = [step for step in range(1, state.step + 1) if _is_evaluated(run, step)]
            record.rewind(state.step if resume_note is not None else -1, due, state.recorded)
        train_step = make_step(eager, speed)
        if fitted != run:
            reduced = f"batch_size {run.batch_size} is reduced to {fitted.batch_size}, the number of training examples"
            watch(Update(state.step, run.iterations, note=reduced))
        if speed_note is not None:
            watch(Update(state.step, run.iterations, note=speed_note))

        # Train.
        diverged = False
        method.trainable.train()
        stalled = ranks.any(_has_stalled(run, state))
        while state.step < run.iterations and not stalled:
            rate = learning_rate(state.step)
            state.advance(train_step(state.step))
            step = state.step
            if step % epoch == 0:
                with EXCLUSIVE:
                    method.epoch_end(step // epoch - 1)

            row, is_due = None, _is_evaluated(run, step)
            if is_due and record is not None:
                row = _evaluate_parts(run, material, parts, state, rate, evaluate, record)
                state.best.consider(row, method.predictor.state_dict())
            beat(step)

            note = None
            if isinstance(train_step, CapturedStep) and train_step.note != speed_note:
                note = speed_note = train_step.note  # capturing failed meanwhile
            watch(Update(step, run.iterations, row=row, note=note, holdout=material.dataset.holdout))
            if row is not None and has_diverged(row) and not diverged:
                diverged = True
                why = f"training diverged: loss or outputs are not finite at iteration {step}; try a smaller lr"
                watch(Update(step, run.iterations, note=why))

            # with several ranks the question makes a GPU wait, so it is asked less often
            asks = ranks.size == 1 or device.type != "cuda" or is_due or step % 16 == 0
            stops = asks and ranks.any(should_stop())
            pauses = run.checkpoint_every is not None and step % run.checkpoint_every == 0
            if record is not None and (is_due or pauses or stops):
                state.recorded = record.digests
                state.save(path)
            stalled = run.patience is not None and is_due and ranks.any(record is not None and _has_stalled(run, state))
            if stops and step < run.iterations and not stalled:
                raise Interrupted(folder, step)
        if stalled:
            why = f"stopped early at iteration {state.step}: no better accuracy since iteration {state.best.step}"
            watch(Update(state.step, run.iterations, note=f"{why}, whose model --best uses"))

        # Finish.
        if record is not None:
            test = None if parts.test is None else evaluate(method.predictor, parts.test)
            seconds = round(time.perf_counter() - started, 3)
            temperature, scaled = _calibrated(parts, method.predictor, evaluate) if run.calibrate else (None, None)
            result = result_of(run, material, read_rows(folder), state.best, test, scaled) | {"seconds": seconds}
            if temperature is not None:
                result["temperature"] = temperature
            if run.record_p and (posteriors := getattr(method, "posteriors", None)) is not None:
                write_posteriors(folder, *posteriors())
            finish(run, material, method.predictor, state.best, result, record)
        ranks.any(False)  # so that no rank returns before the result is written
    return folder


def _check_finished(folder: Path) -> Path:
    """Return the folder of a finished run; remove checkpoints that a process killed at its very end has left."""
    if (problem := summarise(folder).problem) is not None:
        raise DataError(problem)
    checkpoint.remove(folder / "checkpoint.pt")
    return folder


def _calibrated(parts: Parts, net: nn.Module, evaluate: Evaluate) -> tuple[float, Tensor | None]:
    """Return the temperature fitted on the validation part, and the confidence of the test predictions with it."""

    def logits_of(part: Batches) -> Tensor:
        batches: list[Tensor] = []

        def collect(logits: Tensor, target: Tensor, index: Tensor) -> None:
            batches.append(logits.double().cpu())

        evaluate(net, part, collect)
        return torch.cat(batches)

    assert parts.validation is not None  # Run requires one
    temperature = fit_temperature(logits_of(parts.validation), parts.validation.labels.cpu())
    if parts.test is None:
        return temperature, None
    return temperature, (logits_of(parts.test) / temperature).softmax(1).amax(1)


def _has_stalled(run: Run, state: TrainState) -> bool:
    """Return whether the accuracy has not improved for `patience` evaluations."""
    return run.patience is not None and state.step - max(0, state.best.step) >= run.patience * run.evaluate_every


def _is_evaluated(run: Run, step: int) -> bool:
    return step % run.evaluate_every == 0 or step == run.iterations


def _open_record(
    run: Run, material: Material, folder: Path, device: torch.device, speed: Speed, ranks: Ranks
) -> AbstractContextManager[Record | None]:
    """Open the record of the run; None on all ranks but the first, which alone writes."""
    if not ranks.first:
        return nullcontext()
    make_folder(folder)
    settings = environment(str(device)) | speed.described() | {"processes": ranks.size}
    return Record(folder, header_of(run, material), settings)


def _evaluate_parts(
    run: Run, material: Material, parts: Parts, state: TrainState, rate: float, evaluate: Evaluate, record: Record
) -> dict[str, Any]:
    """Evaluate the training part and all held-out parts, append the row to the record and return it."""
    method, step = state.method, state.step
    train = evaluate(method.predictor, parts.train, lambda z, y, i: method.weights(z, y, i, step - 1))
    given = torch.from_numpy(material.train.labels.copy())
    clean = None if material.clean is None else torch.from_numpy(material.clean.copy())
    row = training_row(train, given, clean, material.dataset.num_classes)
    for name, part in (("test", parts.test), ("validation", parts.validation)):
        if part is not None:
            row |= holdout_row(evaluate(method.predictor, part), part.labels.cpu(), name)
    objective = mean_objective(run, train.cross_entropy, step - 1)
    row |= method.columns(clean)
    own = {"step": step, "lr": rate} | ({} if objective is None else {"objective": objective})
    row = finite(own | {"loss": state.mean_loss()} | row)
    p, margins, rivals = train.p.numpy(), train.margin.numpy(), train.rival.numpy()
    record.append(row, p if run.record_p else None, (margins, rivals) if run.record_margins else None)
    return row
