"""Labels of a table that are probably not what they seem: words for a missing value, one number written in two ways."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

MISSING = frozenset(("na", "n/a", "#n/a", "#na", "<na>", "nan", "-nan", "null", "none", "?"))
"""What tables hold where a value is missing, in lower case."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_SHOWN = 5


def doubts(labels: Sequence[str]) -> list[str]:
    """A sentence for each doubt about labels, all of which become classes as they are written.

    >>> for doubt in doubts(["1", "1", "1.0", "2", "NA"]):
    ...     print(doubt)
    'NA' in 1 row, which is how tables write a missing value: kept as classes; leave such rows out if they have no label
    '1' in 2 rows, '1.0' in 1 row, the same number: kept as different classes; write it in one way if they are one
    """
    counts = Counter(labels)
    found = []
    if missing := [label for label in counts if label.lower() in MISSING]:
        found.append(
            f"{_counted(missing, counts)}, which is how tables write a missing value: kept as classes; leave such rows "
            "out if they have no label"
        )
    numbers: dict[Decimal, list[str]] = {}
    for label in counts:
        if _NUMBER.fullmatch(label):
            numbers.setdefault(Decimal(label), []).append(label)
    for same in [same for same in numbers.values() if len(same) > 1][:_SHOWN]:
        found.append(
            f"{_counted(same, counts)}, the same number: kept as different classes; write it in one way if they are one"
        )
    return found


def _counted(labels: Sequence[str], counts: Counter[str]) -> str:
    return ", ".join(f"{label!r} in {counts[label]:,} row{'s' if counts[label] > 1 else ''}" for label in labels)
