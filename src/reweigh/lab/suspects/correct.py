"""Labels and decisions -> corrected labels, which examples stay, and a log of every change; nothing in place."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.suspects.decisions import Decision

LOG_COLUMNS = ("index", "source", "before", "after", "why")


@dataclass(frozen=True)
class Change:
    """One line of the log; `after` is None for an example that is left out."""

    index: int
    before: int
    after: int | None
    why: str


class Corrected(NamedTuple):
    """What decisions make of labels.

    Attributes:
        labels: (N,) int64, also of the examples that are left out.
        keep: (N,) bool, which examples stay.
        changes: one for each example that was relabelled or left out, by index.
    """

    labels: NDArray[np.int64]
    keep: NDArray[np.bool_]
    changes: tuple[Change, ...]


def apply(labels: NDArray[np.int64], decisions: Iterable[Decision]) -> Corrected:
    """The labels after the decisions, which must be about them.

    A fix to the label that is there already changes nothing, and is not logged.

    >>> done = apply(np.array([0, 1, 1]), [Decision(2, 1, "fix", 0), Decision(0, 0, "drop", 0)])
    >>> done.labels, done.keep
    (array([0, 1, 0]), array([False,  True,  True]))
    >>> [change.after for change in done.changes]
    [None, 0]
    """
    corrected, keep = labels.astype(np.int64), np.ones(len(labels), dtype=np.bool_)
    seen: set[int] = set()
    changes = []
    for each in sorted(decisions, key=lambda decision: decision.index):
        if not 0 <= each.index < len(labels):
            raise ValueError(f"decisions: index {each.index} is out of range for {len(labels)} labels")
        if each.index in seen:
            raise ValueError(f"decisions: index {each.index} is decided on twice")
        seen.add(each.index)
        before = int(labels[each.index])
        if each.given != before:
            raise ValueError(f"decisions: example {each.index} has the label {before}, not {each.given}")
        if each.kind == "drop":
            keep[each.index] = False
            changes.append(Change(each.index, before, None, each.why))
        elif each.kind == "fix" and each.label != before:
            corrected[each.index] = each.label
            changes.append(Change(each.index, before, each.label, each.why))
    if not keep.any():
        raise ValueError(f"decisions: all {len(labels)} examples are dropped; one must stay at least")
    return Corrected(corrected, keep, tuple(changes))


def log_csv(changes: Iterable[Change], sources: Sequence[str], class_names: Sequence[str]) -> str:
    """The log as CSV; `after` is empty for an example that is left out.

    >>> print(log_csv([Change(1, 0, None, "decided by hand")], ["a.png", "b.png"], ["cat", "dog"]), end="")
    index,source,before,after,why
    1,"b.png","cat","","decided by hand"
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    text.write(",".join(LOG_COLUMNS) + "\n")
    for change in changes:
        after = "" if change.after is None else class_names[change.after]
        writer.writerow([change.index, sources[change.index], class_names[change.before], after, change.why])
    return text.getvalue()
