"""Procedures that begin a run from other weights: those of a short first run, or drawn as Caffe draws them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import safetensors.torch
import torch

from reweigh.lab.nets.initialise import caffe_xavier
from reweigh.lab.procedures.journal import Journal, RunOne, final_and_best
from reweigh.lab.record.files import make_folder, replace_file
from reweigh.lab.run import execute
from reweigh.lab.run.material import gather
from reweigh.lab.run.parts import net_of
from reweigh.lab.spec import Run
from reweigh.streams import generator


def warm_start(run: Run, root: Path, *, iterations: int, run_one: RunOne = execute) -> Path:
    """Train by cross entropy for a few iterations at the run's first learning rate; begin the run from there.

    Args:
        run: what begins from the weights of the first run.
        root: where run folders lie.
        iterations: of the first run.
        run_one: executes a run; (run, root) -> folder.

    Returns:
        the procedure's folder. Its result has final and best test accuracy of the run.
    """
    journal = Journal("warm-start", run, root, {"iterations": iterations}, run_one)
    if journal.is_done:
        return journal.folder
    plain = {"weighting": "CCE", "loss": None, "method": None, "normalise": "auto", "taper": "auto"}
    first = replace(run, **plain, iterations=iterations, evaluate_every=iterations, schedule="constant")  # type: ignore[arg-type]  # mypy takes the names for values
    weights = journal.run("first", first) / "model" / "model.safetensors"
    return _started(journal, run, weights)


def caffe_start(run: Run, root: Path, *, run_one: RunOne = execute) -> Path:
    """Begin the run from Caffe's xavier filler, U(+-sqrt(3 / fan_in)) and zero biases, in every layer."""
    journal = Journal("caffe-start", run, root, {}, run_one)
    if journal.is_done:
        return journal.folder
    weights = journal.folder / "weights.safetensors"
    if not weights.exists():
        net = net_of(run, gather(run), torch.device("cpu"))
        draws = generator(run.seed, "caffe start")
        for module in net.modules():
            caffe_xavier(module, draws)
        content = safetensors.torch.save(net.state_dict())
        make_folder(journal.folder)
        replace_file(weights, lambda file: file.write(content))
    return _started(journal, run, weights)


def _started(journal: Journal, run: Run, weights: Path) -> Path:
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    started = journal.run("started", replace(run, init_file=weights.as_posix(), init_hash=digest))
    return journal.finish(dict(final_and_best(started)))
