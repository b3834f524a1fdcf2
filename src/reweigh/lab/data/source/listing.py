"""Which of many listed files are there: one look per folder instead of one per file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from reweigh.errors import DataError

SHOWN = 5


class Listing:
    """The files under a root, each folder read once when first asked about.

    >>> "no/such.jpg" in Listing(Path("."))
    False
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folders: dict[str, frozenset[str]] = {}

    def __contains__(self, name: str) -> bool:
        folder, _, file = name.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = _entries(self.root / folder)
        return file in self._folders[folder]


def _entries(folder: Path) -> frozenset[str]:
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if entry.is_file())
    except (OSError, ValueError):  # ValueError: a null byte in a listed name
        return frozenset()


def check_inside(
    names: Iterable[str], where: Path, place: Callable[[int], str] = lambda number: f"line {number + 1}"
) -> None:
    """Refuse a listed name that is absolute or climbs out of its folder.

    Args:
        names: as listed.
        where: the file that lists them.
        place: where in it name number `i` stands, from 0; by default every line has one.
    """
    for number, name in enumerate(names):
        if name.startswith("/") or "\\" in name or ".." in name.split("/"):
            raise DataError(f"{where}: {place(number)}: {name!r} leads out of the data folder")


def refuse_missing(root: Path, missing: Sequence[str], total: int) -> None:
    """Report files that are listed but not there, all counted and the first few named."""
    if missing:
        more = "" if len(missing) <= SHOWN else f" and {len(missing) - SHOWN} more"
        raise DataError(
            f"{root}: {len(missing)} of {total} listed files are missing: {', '.join(missing[:SHOWN])}{more}"
        )
