"""Decisions about suspects, as a CSV file that the page writes and people can edit.

decisions.csv   one line per decision, UTF-8

index           row in the training part, counted from 0
given           the given label
decision        keep, fix or drop
label           the new label; the given one for keep and drop
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, NoReturn, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.csv_text import csv_text, original
from reweigh.lab.data.source.columns import Table, read, require_columns
from reweigh.lab.record.files import make_folder, replace_file
from reweigh.labels.suspects import Suspects
from reweigh.labels.verdicts import SURE, verdicts

Kind: TypeAlias = Literal["keep", "fix", "drop"]

COLUMNS = ("index", "given", "decision", "label")
KINDS: tuple[Kind, ...] = get_args(Kind)
MAX_NAMED = 20  # classes in an error message


@dataclass(frozen=True)
class Decision:
    """A decision about one example.

    Attributes:
        index: its row in the training part.
        given: its class.
        kind: "keep" changes nothing, "fix" changes the class, "drop" removes the example.
        label: the new class; the given one unless it is fixed.
        why: the reason, for the log.
    """

    index: int
    given: int
    kind: Kind
    label: int
    why: str = "decided by hand"


def accept_suggestions(
    suspects: Suspects, *, threshold: float | None = None, sure: float = SURE, drop: bool = False
) -> tuple[Decision, ...]:
    """Turn suspects into decisions by `reweigh.labels.verdicts`, most suspicious first.

    Args:
        suspects: the list.
        threshold: decide about scores of at least this; by default the issues.
        sure: relabel if the suggested label has at least this probability, and drop otherwise.
        drop: drop all of them.
    """
    for name, value in (("threshold", threshold), ("sure", sure)):
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"{name} is {value}; expected a number from 0 to 1")
    found = verdicts(suspects, sure=2.0 if drop else sure, threshold=threshold)
    decisions = []
    for i in suspects.ranked().tolist():
        kind, given = cast(Kind, str(found[i])), int(suspects.given[i])
        if kind != "keep":
            label = int(suspects.suggested[i]) if kind == "fix" else given
            why = f"suspect with score {suspects.score[i]:.4g}: {suspects.description}"
            decisions.append(Decision(int(suspects.index[i]), given, kind, label, why))
    return tuple(decisions)


def read_decisions(
    path: str | os.PathLike[str], labels: NDArray[np.int64], class_names: Sequence[str]
) -> tuple[Decision, ...]:
    """Read the decisions of a file, in its order, and check them against the data.

    Args:
        path: the file.
        labels: (N,) the given labels of the training part.
        class_names: class id -> name.

    Raises:
        DataError: a column is missing, a decision or class is unknown, an index is out of range or occurs twice, or
            the given label differs from the data's; the message names the line.
    """
    table = read(Path(path))
    require_columns(table, *COLUMNS)
    known = {name: k for k, name in enumerate(class_names)}
    rows = zip(*(map(original, table.texts(column)) for column in COLUMNS), strict=True)  # a class name may be empty
    decisions, seen = list[Decision](), dict[int, str]()
    for row, (number, given, kind, label) in enumerate(rows):
        index = _index(table, row, number, len(labels))
        if index in seen:
            _refuse(table, row, f"index {index} already occurs on {seen[index]}")
        seen[index] = table.place(row)
        actual = class_names[labels[index]]
        if given != actual:
            _refuse(table, row, f"given is {given!r:.60}, but example {index} has the label {actual!r:.60}")
        if kind not in KINDS:
            _refuse(table, row, f"decision is {kind!r:.60}; expected {', '.join(KINDS)}")
        if label not in known:
            _refuse(table, row, f"label is {label!r:.60}; {_allowed(label, class_names)}")
        if kind != "fix" and label != given:
            _refuse(table, row, f"label is {label!r:.60}, but {kind} requires the given label, {given!r:.60}")
        decisions.append(Decision(index, known[given], cast(Kind, kind), known[label]))
    return tuple(decisions)


def decisions_to_csv(decisions: Iterable[Decision], class_names: Sequence[str]) -> str:
    """Format decisions as the content of decisions.csv, by index.

    >>> print(decisions_to_csv([Decision(7, 0, "fix", 1), Decision(3, 1, "drop", 1)], ["cat", "dog"]), end="")
    index,given,decision,label
    3,"dog","drop","dog"
    7,"cat","fix","dog"
    """
    ordered = sorted(decisions, key=lambda decision: decision.index)
    rows = [(each.index, class_names[each.given], each.kind, class_names[each.label]) for each in ordered]
    return csv_text(COLUMNS, rows, quoted=True)


def write_decisions(path: str | os.PathLike[str], decisions: Iterable[Decision], class_names: Sequence[str]) -> None:
    """Write decisions.csv atomically; its folder is created if needed."""
    path, content = Path(path), decisions_to_csv(decisions, class_names).encode()
    make_folder(path.parent)
    replace_file(path, lambda file: file.write(content))


def _index(table: Table, row: int, text: str, count: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) < count):
        _refuse(table, row, f"index is {text!r:.60}; expected 0 to {count - 1}")
    return int(text)


def _allowed(label: str, class_names: Sequence[str]) -> str:
    """Name the closest class if there is one, else the first classes."""
    if close := get_close_matches(label, class_names, n=1):
        return f"did you mean {close[0]!r:.60}?"
    more = f" and {len(class_names) - MAX_NAMED} more" if len(class_names) > MAX_NAMED else ""
    return f"expected one of {', '.join(f'{name!r:.60}' for name in class_names[:MAX_NAMED])}{more}"


def _refuse(table: Table, row: int, problem: str) -> NoReturn:
    raise DataError(f"{table.path}: {table.place(row)}: {problem}")
