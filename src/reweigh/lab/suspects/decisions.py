"""What somebody decided about suspects, as a CSV file that the page writes and people can edit.

decisions.csv   one line per example that was looked at, UTF-8

index           row in the training part, counted from 0
given           the label it has
decision        keep, fix or drop
label           the label it is to have; the given one for keep and drop
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, NoReturn, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.data.source.columns import Table, read, require_columns
from reweigh.lab.record.files import make_folder, replace_file
from reweigh.labels.suspects import Suspects

Kind: TypeAlias = Literal["keep", "fix", "drop"]

COLUMNS = ("index", "given", "decision", "label")
KINDS: tuple[Kind, ...] = get_args(Kind)
NAMED = 20  # classes that an error names at most


@dataclass(frozen=True)
class Decision:
    """What becomes of one example.

    Attributes:
        index: its row in the training part.
        given: the class it has.
        kind: "keep" leaves it as it is, "fix" gives it another class, "drop" leaves it out.
        label: the class it is to have; the given one unless it is fixed.
        why: where the decision comes from, for the log.
    """

    index: int
    given: int
    kind: Kind
    label: int
    why: str = "decided by hand"


def suggested(
    suspects: Suspects, *, threshold: float | None = None, sure: float = 0.0, drop: bool = False
) -> tuple[Decision, ...]:
    """The suggestions as decisions, the most suspicious first.

    Args:
        suspects: the list.
        threshold: take every score of at least this; by default what is called an issue.
        sure: of these, only where the model gives the suggested label at least this probability.
        drop: leave the suspects out instead of relabelling them.

    A suspect whose suggested label is the given one can only be dropped.
    """
    for name, value in (("threshold", threshold), ("sure", sure)):
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"{name} is {value}; expected a number from 0 to 1")
    taken = suspects.issue if threshold is None else suspects.score >= threshold
    taken = taken & (suspects.p_suggested >= sure)
    order = suspects.ranked()
    found = []
    for i in order[taken[order]].tolist():
        index, given, label = int(suspects.index[i]), int(suspects.given[i]), int(suspects.suggested[i])
        why = f"suspect with score {suspects.score[i]:.4g}: {suspects.method}"
        if drop:
            found.append(Decision(index, given, "drop", given, why))
        elif label != given:
            found.append(Decision(index, given, "fix", label, why))
    return tuple(found)


def read_decisions(
    path: str | os.PathLike[str], labels: NDArray[np.int64], class_names: Sequence[str]
) -> tuple[Decision, ...]:
    """The decisions in a file, in its order, checked against the data that they are about.

    Args:
        path: the file.
        labels: (N,) the given labels of the training part.
        class_names: class id -> name.

    Raises:
        DataError: a column is missing, a decision or class is not known, an index is out of range or there twice, or
            the given label is not what the data say; with the line.
    """
    table = read(Path(path))
    require_columns(table, *COLUMNS)
    known = {name: k for k, name in enumerate(class_names)}
    rows = zip(*(table.texts(column) for column in COLUMNS), strict=True)  # a class may be called nothing
    found, seen = list[Decision](), dict[int, str]()
    for row, (word, given, kind, label) in enumerate(rows):
        index = _index(table, row, word, len(labels))
        if index in seen:
            _refuse(table, row, f"index {index} is decided on already, on {seen[index]}")
        seen[index] = table.place(row)
        there = class_names[labels[index]]
        if given != there:
            _refuse(table, row, f"given is {given!r:.60}, but example {index} has the label {there!r:.60}")
        if kind not in KINDS:
            _refuse(table, row, f"decision is {kind!r:.60}; expected {', '.join(KINDS)}")
        if label not in known:
            allowed = _allowed(label, class_names)
            _refuse(table, row, f"label is {label!r:.60}, which is none of the {len(known)} classes{allowed}")
        if kind != "fix" and label != given:
            _refuse(table, row, f"label is {label!r:.60} with {kind}, which leaves the label {given!r:.60} alone")
        found.append(Decision(index, known[given], cast(Kind, kind), known[label]))
    return tuple(found)


def to_csv(decisions: Iterable[Decision], class_names: Sequence[str]) -> str:
    """The file's content, by index.

    >>> print(to_csv([Decision(7, 0, "fix", 1), Decision(3, 1, "drop", 1)], ["cat", "dog"]), end="")
    index,given,decision,label
    3,"dog","drop","dog"
    7,"cat","fix","dog"
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    text.write(",".join(COLUMNS) + "\n")
    for each in sorted(decisions, key=lambda decision: decision.index):
        writer.writerow([each.index, class_names[each.given], each.kind, class_names[each.label]])
    return text.getvalue()


def write_decisions(path: str | os.PathLike[str], decisions: Iterable[Decision], class_names: Sequence[str]) -> None:
    """Write `path` anew, as a whole or not at all; its folder is made where it is missing."""
    path, content = Path(path), to_csv(decisions, class_names).encode()
    make_folder(path.parent)
    replace_file(path, lambda file: file.write(content))


def _index(table: Table, row: int, word: str, count: int) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 19 and int(word) < count):
        _refuse(table, row, f"index is {word!r:.60}; expected 0 to {count - 1}")
    return int(word)


def _allowed(label: str, class_names: Sequence[str]) -> str:
    """The nearest class if one is near, else the first ones."""
    if near := get_close_matches(label, class_names, n=1):
        return f"; did you mean {near[0]!r:.60}?"
    more = f" and {len(class_names) - NAMED} more" if len(class_names) > NAMED else ""
    return f": {', '.join(f'{name!r:.60}' for name in class_names[:NAMED])}{more}"


def _refuse(table: Table, row: int, what: str) -> NoReturn:
    raise DataError(f"{table.path}: {table.place(row)}: {what}")
