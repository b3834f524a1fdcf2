"""Predict the training examples of a finished run by its model."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from reweigh.lab.data.dataset import Part
from reweigh.lab.run.machine import autocast_of, device_of, machine
from reweigh.lab.run.material import Material, gather
from reweigh.lab.run.parts import batches_of
from reweigh.lab.spec import Run
from reweigh.lab.train.model import load_model

BATCH = 1024


def training_probabilities(
    run: Run,
    folder: Path,
    which: Literal["final", "best"] = "final",
    *,
    held_out: bool = False,
    material: Material | None = None,
) -> NDArray[np.float64]:
    """Return (N, C) probabilities of the training examples, in evaluation mode and without augmentation.

    Args:
        run, folder: the finished run.
        which: the final or the best model.
        held_out: append the examples of the validation part.
        material: `gather(run)`, if it has been computed.
    """
    with machine(run):
        material = material or gather(run)
        parts = [material.train]
        if held_out and material.validation is not None:
            parts.append(material.validation)
        return np.concatenate([_probabilities(run, folder, which, material, part) for part in parts])


def part_probabilities(run: Run, folder: Path, material: Material, part: Part) -> NDArray[np.float64]:
    """Return (N, C) probabilities of other examples of the same data by a finished run, whose data is `material`."""
    with machine(run):
        return _probabilities(run, folder, "final", material, part)


@torch.no_grad()
def _probabilities(
    run: Run, folder: Path, which: Literal["final", "best"], material: Material, part: Part
) -> NDArray[np.float64]:
    device = device_of(run)
    net, _ = load_model(folder / "model", which, device=device, own_code=run.own_code)
    autocast = autocast_of(run, device)
    rows = []
    for batch in batches_of(run, part, material, device, order=None).evaluation(BATCH if part.kind != "files" else 128):
        with autocast():
            logits = net(batch.inputs)
        rows.append(logits.double().softmax(1).cpu())
    probabilities: NDArray[np.float64] = torch.cat(rows).numpy()
    return probabilities
