"""The problems of `suspects.py`: data with known flips, clean data, unbalanced data."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from reweigh.data.registry import folder_of
from reweigh.spec import Run
from reweigh.suspects import default_run

PLAIN = "CCE"


@dataclass(frozen=True)
class Problem:
    """One problem.

    Attributes:
        name: in the table.
        data: which of --data it belongs to.
        fields: of `Run`, on top of `default_run`'s.
        robust: what teaches the one run that suspects are found by; the first is the default for such data.
        retrained: whether labels are corrected and a new net is trained.
    """

    name: str
    data: str
    fields: tuple[tuple[str, Any], ...]
    robust: tuple[str, ...] = ("GCE(0.7)", "DM(0.5, 8)")
    retrained: bool = False

    def run(self, root: Path, taught: str, seed: int, device: str, iterations: int | None) -> Run:
        """The run that records everything, on this problem."""
        fields = dict(self.fields) | {"weighting": taught, "seed": seed, "device": device}
        if self.data in ("cifar10", "tin100") and device.startswith("cuda"):
            fields["precision"] = "bf16"
        if iterations is not None:
            fields |= {"iterations": iterations, "evaluate_every": max(1, iterations // 4)}
        data = self.data
        if data == "imdb":  # as a user brings texts: a table, and one with the test rows
            data = reviews(root, "train")
            fields |= {"text_column": "text", "test_data": reviews(root, "test")}
        return default_run(data, fields)


def _flips(noise: str, rate: float) -> tuple[tuple[str, Any], ...]:
    return ("noise", noise), ("rate", rate)


_TAIL = ("imbalance", "long_tail(10)")  # the rarest class has a tenth of the commonest's examples

PROBLEMS = (
    Problem("digits, symmetric 40 %", "digits", _flips("symmetric", 0.4), retrained=True),
    Problem("digits, pair 20 %", "digits", _flips("pair", 0.2), retrained=True),
    Problem("digits, clean", "digits", ()),
    Problem("digits, unbalanced", "digits", (_TAIL,)),
    Problem("digits, unbalanced, symmetric 20 %", "digits", (_TAIL, *_flips("symmetric", 0.2))),
    Problem("cifar10, symmetric 40 %", "cifar10", _flips("symmetric", 0.4), retrained=True),
    Problem("cifar10, asymmetric 40 %", "cifar10", _flips("asymmetric_cifar10", 0.4), retrained=True),
    Problem("cifar10, clean", "cifar10", ()),
    Problem("cifar10, unbalanced", "cifar10", (_TAIL,)),
    Problem("tin100, symmetric 40 %", "tin100", _flips("symmetric", 0.4), ("DM(0.5, 8)", "GCE(0.7)"), True),
    Problem("imdb, symmetric 20 %", "imdb", _flips("symmetric", 0.2), retrained=True),
    Problem("imdb, symmetric 40 %", "imdb", _flips("symmetric", 0.4)),
)
DATA = tuple(dict.fromkeys(problem.data for problem in PROBLEMS))


def reviews(root: Path, part: str) -> str:
    """IMDB's reviews as a CSV file with the columns label and text, written where it is not there."""
    from reweigh.data import imdb

    path = root / f"imdb-{part}.csv"
    if not path.exists():
        dataset = imdb.load(folder_of("imdb", None))
        chosen = dataset.train if part == "train" else dataset.test
        root.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".part")
        with beside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["label", "text"])
            names = (dataset.class_names[k] for k in chosen.labels.tolist())
            writer.writerows(zip(names, cast("tuple[str, ...]", chosen.inputs), strict=True))
        beside.replace(path)
    return path.as_posix()
