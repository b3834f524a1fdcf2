"""The two data sets of `rivals.py`, with 40 % symmetric noise (the true class excluded), an MLP 256-256 and Adam."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rivals_entries import EPOCHS, RATE

from reweigh.streams import numpy_generator

DATA = ("toy", "digits")
BATCH = 100
EXAMPLES = {"toy": 1500, "digits": 1200}
LEARNING_RATES = (1e-3, 3e-3, 1e-2)


def base(data: str, lr: float, seed: int, root: Path) -> dict[str, Any]:
    """Return the fields of `Run` that all methods share."""
    iterations = EPOCHS * (EXAMPLES[data] // BATCH)
    return {
        "data": toy(root, seed) if data == "toy" else data,
        "noise": "symmetric",
        "rate": RATE,
        "net": "mlp-256-256",
        "iterations": iterations,
        "batch_size": BATCH,
        "optimiser": "adam",
        "lr": lr,
        "schedule": "constant",
        "weight_decay": 0.0,
        "evaluate_every": iterations,
        "seed": seed,
        "device": "cpu",
    }


def toy(root: Path, seed: int) -> str:
    """Create the toy data of a seed, 10 unit Gaussians in 20-D with means from N(0, 1), and return the path."""
    path = root / f"toy-{seed}.npz"
    if not path.exists():
        rng = numpy_generator(seed, "toy")
        means = rng.normal(size=(10, 20))
        arrays: dict[str, Any] = {}
        for part, size in (("train", EXAMPLES["toy"]), ("test", 4000)):
            labels = rng.permutation(np.arange(size) % 10)
            inputs = (means[labels] + rng.normal(size=(size, 20))).astype(np.float32)
            arrays |= {f"x_{part}": inputs, f"y_{part}": labels}
        root.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.stem}.{id(arrays)}.npz")  # several processes may write it at the same time
        np.savez(temporary, **arrays)
        temporary.replace(path)
    return path.as_posix()
