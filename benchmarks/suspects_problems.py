"""The problems of `suspects.py`: data with simulated noise, clean data, unbalanced data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from reweigh.lab.data.registry import folder_of
from reweigh.lab.spec import Run
from reweigh.lab.suspects import default_run

PLAIN = "CCE"

SHORTER: dict[str, dict[str, Any]] = {
    "cifar10": {"iterations": 2500, "batch_size": 256},
    "tin100": {"iterations": 2500, "batch_size": 256},
    "imdb": {"iterations": 2500},
}
"""13 epochs instead of the default of 40, for all runs on these data, to limit the cost of the comparison."""

EVALUATIONS = 10  # the default


@dataclass(frozen=True)
class Problem:
    """One problem.

    Attributes:
        name: in the table.
        data: its value of --data.
        fields: of `Run`, in addition to those of `default_run`.
        robust: weightings of the single runs; the first is the default for such data.
        retrained: whether labels are corrected and a new net is trained.
        brief: only compare false alarms, of one run by the default and of folds by cross entropy.
    """

    name: str
    data: str
    fields: tuple[tuple[str, Any], ...]
    robust: tuple[str, ...] = ("GCE(0.7)", "DM(0.5, 8)", "Auto")
    retrained: bool = False
    brief: bool = False

    def run(self, root: Path, weighting: str, seed: int, device: str, iterations: int | None) -> Run:
        """Return the run on this problem that records p and margins."""
        objective = {"method" if weighting == "Auto" else "weighting": weighting}
        fields = SHORTER.get(self.data, {}) | dict(self.fields) | objective | {"seed": seed, "device": device}
        if self.data in ("cifar10", "tin100") and device.startswith("cuda"):
            fields["precision"] = "bf16"
        if iterations is not None:
            fields |= {"iterations": iterations, "evaluate_every": max(1, iterations // EVALUATIONS)}
        return default_run(reviews(root) if self.data == "imdb" else self.data, fields)


def _flips(noise: str, rate: float) -> tuple[tuple[str, Any], ...]:
    return ("noise", noise), ("rate", rate)


_TAIL = ("imbalance", "long_tail(10)")  # the rarest class has a tenth of the examples of the most frequent one

PROBLEMS = (
    Problem("digits, symmetric 40 %", "digits", _flips("symmetric", 0.4), retrained=True),
    Problem("digits, pair 20 %", "digits", _flips("pair", 0.2), retrained=True),
    Problem("digits, clean", "digits", ()),
    Problem("digits, unbalanced", "digits", (_TAIL,)),
    Problem("digits, unbalanced, symmetric 20 %", "digits", (_TAIL, *_flips("symmetric", 0.2))),
    Problem("cifar10, symmetric 40 %", "cifar10", _flips("symmetric", 0.4), retrained=True),
    Problem("cifar10, asymmetric 40 %", "cifar10", _flips("asymmetric_cifar10", 0.4), retrained=True),
    Problem("cifar10, clean", "cifar10", (), brief=True),
    Problem("cifar10, unbalanced", "cifar10", (_TAIL,), brief=True),
    Problem("tin100, symmetric 40 %", "tin100", _flips("symmetric", 0.4), ("DM(0.5, 8)", "GCE(0.7)", "Auto"), True),
    Problem("imdb, symmetric 20 %", "imdb", _flips("symmetric", 0.2), retrained=True),
    Problem("imdb, symmetric 40 %", "imdb", _flips("symmetric", 0.4)),
)
DATA = tuple(dict.fromkeys(problem.data for problem in PROBLEMS))


def reviews(root: Path) -> str:
    """Write the vectors of IMDB's reviews to a file once, so that runs need not compute them, and return its path."""
    from reweigh.lab.data import imdb
    from reweigh.lab.data.vectors import hash_texts

    path = root / "imdb.npz"
    if not path.exists():
        dataset = imdb.load(folder_of("imdb", None))
        x_train, x_test = (hash_texts(cast("tuple[str, ...]", part.inputs)) for part in (dataset.train, dataset.test))
        y_train, y_test = dataset.train.labels, dataset.test.labels
        root.mkdir(parents=True, exist_ok=True)
        unfinished, names = path.with_suffix(".part.npz"), np.array(dataset.class_names)
        np.savez(unfinished, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test, class_names=names)
        unfinished.replace(path)
    return path.as_posix()
