"""A user's own tracklets, as a folder or a table, in the same types as MARS.

    root/train/<person>/<camera>/<tracklet>/<frames>       root/gallery/...       root/query/...

    path,person,camera,tracklet,part                       a .csv, .tsv or .parquet, one row per frame;
    cam1/0001.jpg,alice,1,1,train                          part is train, query or gallery,
    cam2/0420.jpg,alice,2,1,gallery                        paths are relative to the folder of the table

Names of persons, cameras and tracklets are free; a person named `junk` (or MARS's `00-1`) is neither right nor wrong
when retrieved, one named `distractor` (`0000`) is wrong for every query. Frames of a folder are ordered by name (10.jpg
after 9.jpg), those of a table by row. Persons and cameras with numbers as names keep them as ids; others are numbered
from 1 in the order of their names, over all parts. A tracklet is named <part>/<person>/<camera>/<tracklet>. As in MARS,
the gallery and the queries themselves are searched. Without queries, the first tracklet in each camera of every person
seen by two or more is one.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reweigh.errors import DataError
from reweigh.lab.data import mars
from reweigh.lab.data.dataset import Dataset, Part
from reweigh.lab.data.mars import DISTRACTOR, JUNK, Index, Tracklets, default_queries
from reweigh.lab.data.source.columns import read
from reweigh.lab.data.source.images import SUFFIXES, Files, Listing, check_inside, refuse_missing

PARTS = ("train", "query", "gallery")
COLUMNS = ("path", "person", "camera", "tracklet", "part")
RESERVED = {"junk": JUNK, "00-1": JUNK, "distractor": DISTRACTOR, "0000": DISTRACTOR}


class Track(NamedTuple):
    """One tracklet: its names, and its frames in order."""

    part: str
    person: str
    camera: str
    tracklet: str
    frames: list[str]


def load(root: str | os.PathLike[str]) -> Dataset:
    """Load the training frames as independent images with the person as class; the test part is empty, as for MARS."""
    folder, tracks = _find(Path(root))
    train = [track for track in tracks if track.part == "train"]
    names = tuple(sorted({track.person for track in train}))
    if not names:
        raise DataError(f"{root}: no training part")
    for name in names:
        if name in RESERVED:
            raise DataError(f"{root}: training person {name!r}: the name is reserved for junk")
    labels = np.array([names.index(track.person) for track in train for _ in track.frames], dtype=np.int64)
    files = Files(folder, tuple(name for track in train for name in track.frames))
    empty = Part(files.take([]), np.empty(0, dtype=np.int64))
    return Dataset(Path(root).resolve().stem, Part(files, labels), empty, names)


def read_index(root: str | os.PathLike[str]) -> Index:
    """Read the tracklets of all parts, and the queries."""
    folder, tracks = _find(Path(root))
    persons = _numbered({track.person for track in tracks} - RESERVED.keys(), "person") | RESERVED
    cameras = _numbered({track.camera for track in tracks}, "camera")

    def tracklets(chosen: Sequence[Track]) -> Tracklets:
        lengths = np.array([len(track.frames) for track in chosen], dtype=np.int64)
        return Tracklets(
            Files(folder, tuple(name for track in chosen for name in track.frames)),
            np.cumsum(lengths) - lengths,
            np.cumsum(lengths),
            np.array([persons[track.person] for track in chosen], dtype=np.int64),
            np.array([cameras[track.camera] for track in chosen], dtype=np.int64),
            tuple(_encodable(track.person) for track in chosen),
            tuple(_encodable("/".join(track[:4])) for track in chosen),
        )

    train = tracklets([track for track in tracks if track.part == "train"])
    searched = [track for track in tracks if track.part != "train"]
    if not any(track.part == "gallery" for track in searched):
        raise DataError(f"{root}: no gallery; expected the parts train and gallery, and optionally query")
    test = tracklets(searched)
    query_rows = [row for row, track in enumerate(searched) if track.part == "query"]
    for row in query_rows:
        if test.persons[row] <= DISTRACTOR:
            raise DataError(f"{root}: a query for {searched[row].person!r}, which is reserved for junk")
    queries = np.array(query_rows, dtype=np.int64) if query_rows else default_queries(test.persons, test.cameras)
    if not len(queries):
        raise DataError(f"{root}: no queries, and no person in the gallery is seen by two cameras")
    return Index(train, test, queries)


def index_of(data: str, root: str | os.PathLike[str]) -> Index:
    """Return the index of a data set: `"mars"` (official if its name files exist) or `"tracklets"`."""
    if data == "tracklets":
        return read_index(root)
    if data != "mars":
        raise ValueError(f"data must be 'mars' or 'tracklets', not {data!r}")
    folder = mars.find_root(root)
    named = all((folder / "info" / f"{side}_name.txt").is_file() for side in ("train", "test"))
    return mars.read_index(folder) if named else mars.scan(folder)


def _find(root: Path) -> tuple[Path, list[Track]]:
    """Return the folder that names are relative to, and the tracklets in order; all their frames exist."""
    if root.is_dir():
        return root, _walk(root)
    if not root.is_file():
        raise DataError(f"{root}: no such folder or table")
    tracks = _rows(root)
    present = Listing(root.parent)
    names = [name for track in tracks for name in track.frames]
    refuse_missing(root.parent, [name for name in names if name not in present], len(names))
    return root.parent, tracks


def _walk(root: Path) -> list[Track]:
    tracks = []
    for part in PARTS:
        for person in _folders(root / part):
            for camera in _folders(person):
                for tracklet in _folders(camera):
                    names = (entry.name for entry in tracklet.iterdir() if not entry.name.startswith("."))
                    ordered = sorted(names, key=lambda name: (len(Path(name).stem), name))
                    for name in ordered:
                        if Path(name).suffix.lower() not in SUFFIXES or (tracklet / name).is_dir():
                            raise DataError(f"{tracklet / name}: does not have the suffix of an image")
                    if not ordered:
                        raise DataError(f"{tracklet}: the tracklet is empty")
                    relative = tracklet.relative_to(root).as_posix()
                    frames = [f"{relative}/{name}" for name in ordered]
                    tracks.append(Track(part, person.name, camera.name, tracklet.name, frames))
    if not tracks:
        raise DataError(f"{root}: no tracklets; expected train/<person>/<camera>/<tracklet>/ and gallery/...")
    return tracks


def _folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, none if it does not exist; raise DataError for files."""
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    entries = [entry for entry in entries if not entry.name.startswith(".")]
    for entry in entries:
        if not entry.is_dir():
            raise DataError(f"{entry}: unexpected file; expected <part>/<person>/<camera>/<tracklet>/<frame>")
    return entries


def _rows(path: Path) -> list[Track]:
    table = read(path)
    for name in COLUMNS:
        if name not in table.names:
            raise DataError(f"{path}: no column {name!r}; expected {', '.join(COLUMNS)}")
    files, persons, cameras, tracklets, parts = (table.strings(name) for name in COLUMNS)
    check_inside(files, path, table.place)
    frames: dict[tuple[str, str, str, str], list[str]] = {}
    for row, part in enumerate(parts):
        if part not in PARTS:
            raise DataError(f"{path}: {table.place(row)}: part is {part!r}; expected {', '.join(PARTS)}")
        frames.setdefault((part, persons[row], cameras[row], tracklets[row]), []).append(files[row])
    order = sorted(frames, key=lambda key: (PARTS.index(key[0]), *key[1:]))
    return [Track(*key, frames[key]) for key in order]


def _encodable(name: str) -> str:
    """Return a name that can be encoded; that of a folder may be in another encoding."""
    return name.encode("utf-8", "backslashreplace").decode()


def _numbered(names: Collection[str], what: str) -> dict[str, int]:
    """Return name -> id: the number itself if all names are integers from 1 to 10^18, else the rank of the name.

    >>> _numbered({"7", "12"}, "person"), _numbered({"bob", "7"}, "person")
    ({'12': 12, '7': 7}, {'7': 1, 'bob': 2})
    """
    ordered = sorted(names)
    if not all(name.isascii() and name.isdecimal() and len(name) <= 18 and int(name) > 0 for name in ordered):
        return {name: number for number, name in enumerate(ordered, start=1)}
    numbers = {name: int(name) for name in ordered}
    if len(set(numbers.values())) != len(numbers):
        raise DataError(f"two names of a {what} are the same number; rename one: {', '.join(ordered)}")
    return numbers
