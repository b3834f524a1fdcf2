"""MARS: persons seen by six cameras, as tracklets of cropped frames.

    MARS/
      bbox_train/<person>/<name>.jpg   bbox_test/<person>/<name>.jpg
      info/train_name.txt  test_name.txt        one frame per line
      info/tracks_train_info.mat                track_train_info, N x 4
      info/tracks_test_info.mat                 track_test_info, N x 4
      info/query_IDX.mat                        query_IDX, 1 x Q, rows of track_test_info counted from 1

A name is PPPPCcTttttFfff.jpg: person, camera, tracklet, frame; person 00-1 is junk, 0000 a distractor. A row is
(first frame, last frame, person, camera), frames counted from 1, both included; the rows cover all lines in order.
Without the name files (as in small copies of MARS) the index is read from the folders: see `scan`.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.data.dataset import Dataset, Labels, Part
from reweigh.lab.data.source.images import Files, Listing, refuse_missing
from reweigh.lab.data.source.matlab import read_integers
from reweigh.lab.data.source.text import read_lines, read_text

Side: TypeAlias = Literal["train", "test"]

JUNK = -1
DISTRACTOR = 0
QUERIES = "gtPepper/query.json"
NAME = re.compile(r"(\d{4}|00-1)C(\d)T(\d{4})F(\d{3,})\.jpg", re.ASCII)


@dataclass(frozen=True, eq=False)
class Tracklets:
    """Tracklets in file order; tracklet i is the frames start[i]:stop[i] of one person in one camera.

    Args:
        frames: the image files in frame order, or None if only the .mat files exist.
        start: the first frame of each, from 0.
        stop: one past the last frame of each.
        persons: -1 junk, 0 distractor, else the person's id.
        cameras: from 1.
        people: the name of the person of each; by default the id.
        names: the name of each; by default its number, from 1.
    """

    frames: Files | None
    start: Labels
    stop: Labels
    persons: Labels
    cameras: Labels
    people: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.people:
            object.__setattr__(self, "people", tuple(map(str, self.persons.tolist())))
        if not self.names:
            object.__setattr__(self, "names", tuple(map(str, range(1, len(self) + 1))))

    def __len__(self) -> int:
        return len(self.start)

    def __repr__(self) -> str:
        return f"Tracklets({len(self)} of {len(np.unique(self.persons))} ids, {self.lengths.sum()} frames)"

    @property
    def lengths(self) -> Labels:
        """Frames per tracklet."""
        return self.stop - self.start

    @property
    def junk(self) -> NDArray[np.bool_]:
        """Which tracklets count as neither right nor wrong when retrieved."""
        mask: NDArray[np.bool_] = self.persons == JUNK
        return mask

    @property
    def distractor(self) -> NDArray[np.bool_]:
        """Which tracklets are wrong for every query."""
        mask: NDArray[np.bool_] = self.persons == DISTRACTOR
        return mask

    def of(self, tracklet: int) -> Files:
        """Return the frames of one tracklet."""
        if self.frames is None:
            raise DataError("the index has no frames, as info/*_name.txt is missing")
        return self.frames.take(range(int(self.start[tracklet]), int(self.stop[tracklet])))


@dataclass(frozen=True, eq=False)
class Index:
    """The tracklets of both sides; `queries` are rows of `test`, from 0."""

    train: Tracklets
    test: Tracklets
    queries: Labels


def load(root: str | os.PathLike[str]) -> Dataset:
    """Load the training frames as independent images with the person as class, in the order of their ids.

    The test part is empty, as MARS tests retrieval on other persons: see `read_index` and `scan`.
    """
    folder = find_root(root)
    named = (folder / "info" / "train_name.txt").is_file()
    train = read_tracklets(folder, "train") if named else _scan_side(folder, "train")[0]
    files = train.frames
    assert files is not None
    present = Listing(folder)
    refuse_missing(folder, [name for name in files.names if name not in present], len(files))
    ids, labels = np.unique(np.repeat(train.persons, train.lengths), return_inverse=True)
    empty = Part(files.take([]), np.empty(0, dtype=np.int64))
    names = tuple(f"{person:04d}" for person in ids)
    return Dataset("mars", Part(files, labels.astype(np.int64)), empty, names)


def read_index(root: str | os.PathLike[str]) -> Index:
    """Read the official index from info/; works without images and without the name files."""
    folder = find_root(root)
    test = read_tracklets(folder, "test")
    path = folder / "info" / "query_IDX.mat"
    rows = read_integers(path, "query_IDX").reshape(-1)
    if not rows.size:
        raise DataError(f"{path}: query_IDX is empty; expected at least one query")
    bad = np.flatnonzero((rows < 1) | (rows > len(test)))
    if bad.size:
        raise DataError(f"{path}: query {bad[0] + 1} is row {rows[bad[0]]}; expected 1 to {len(test)}")
    queries = rows - 1
    reserved = np.flatnonzero(test.persons[queries] <= DISTRACTOR)
    if reserved.size:
        raise DataError(f"{path}: query {reserved[0] + 1} is row {rows[reserved[0]]}, a junk or distractor tracklet")
    return Index(read_tracklets(folder, "train"), test, queries)


def read_tracklets(root: str | os.PathLike[str], side: Side) -> Tracklets:
    """Read one side of the official index, and compare every name with its row."""
    folder = find_root(root)
    path = folder / "info" / f"tracks_{side}_info.mat"
    table = read_integers(path, f"track_{side}_info")
    if table.ndim != 2 or table.shape[1] != 4 or not len(table):
        raise DataError(f"{path}: track_{side}_info has shape {table.shape}; expected N x 4")
    first, last, persons, cameras = table.T
    expected = np.concatenate([[1], last[:-1] + 1])
    for wrong, what in (
        (first != expected, "does not start after the previous one"),
        (last < first, "ends before it starts"),
        (persons < JUNK, "has an impossible person"),
        (cameras < 1, "has an impossible camera"),
    ):
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(f"{path}: row {row + 1} {what}: {table[row].tolist()}")
    names = folder / "info" / f"{side}_name.txt"
    frames = _named_frames(folder, side, names, table) if names.is_file() else None
    return _with_names(Tracklets(frames, first - 1, last.copy(), persons.copy(), cameras.copy()))


def scan(root: str | os.PathLike[str]) -> Index:
    """Build the index from the folders and names of the existing frames, ordered by person, camera and tracklet.

    Queries are those of gtPepper/query.json, which small copies include, else those of `default_queries`.
    """
    folder = find_root(root)
    test, keys = _scan_side(folder, "test")
    path = folder / QUERIES
    queries = _listed_queries(path, keys) if path.is_file() else default_queries(test.persons, test.cameras)
    return Index(_scan_side(folder, "train")[0], test, queries)


def default_queries(persons: Labels, cameras: Labels) -> Labels:
    """Return the queries by the rule of MARS: the first tracklet in each camera of every person seen by two or more.

    >>> default_queries(np.array([-1, 2, 2, 2, 4]), np.array([1, 1, 1, 2, 1]))
    array([1, 3])
    """
    pairs, first = np.unique(np.stack((persons, cameras)), axis=1, return_index=True)
    _, person, seen_by = np.unique(pairs[0], return_inverse=True, return_counts=True)
    return np.sort(first[(pairs[0] > DISTRACTOR) & (seen_by[person] > 1)]).astype(np.int64)


def find_root(root: str | os.PathLike[str]) -> Path:
    """Return the data folder: `root` itself, or MARS/, mars/ or mini_mars/ in it."""
    folder = Path(root)
    for candidate in (folder, folder / "MARS", folder / "mars", folder / "mini_mars"):
        if (candidate / "info").is_dir() or (candidate / "bbox_train").is_dir():
            return candidate
    raise DataError(f"{folder}: neither info/ nor bbox_train/, nor MARS/ with one of them")


def _scan_side(folder: Path, side: Side) -> tuple[Tracklets, list[tuple[int, int, int]]]:
    """Return the tracklets in bbox_train or bbox_test, and (person, camera, tracklet) of each."""
    box = folder / f"bbox_{side}"
    if not box.is_dir():
        raise DataError(f"{box}: no such folder")
    by_key: dict[tuple[int, int, int], list[str]] = {}
    for path in sorted(box.glob("[!.]*/[!.]*"), key=lambda path: (path.parent.name, len(path.name), path.name)):
        key = parse_name(path.name, str(path))
        if path.parent.name != path.name[:4]:
            raise DataError(f"{path}: a frame of person {path.name[:4]} is in the folder of {path.parent.name}")
        by_key.setdefault(key, []).append(f"bbox_{side}/{path.parent.name}/{path.name}")
    if not by_key:
        raise DataError(f"{box}: no frames")
    keys = sorted(by_key)
    stop = np.cumsum([len(by_key[key]) for key in keys], dtype=np.int64)
    start = np.concatenate([[0], stop[:-1]]).astype(np.int64)
    persons, cameras, _ = np.array(keys, dtype=np.int64).T
    frames = Files(folder, tuple(name for key in keys for name in by_key[key]))
    return _with_names(Tracklets(frames, start, stop, persons, cameras)), keys


def _with_names(tracklets: Tracklets) -> Tracklets:
    """Name persons after their folders, and tracklets after their frames."""
    people = tuple("00-1" if person == JUNK else f"{person:04d}" for person in tracklets.persons.tolist())
    if tracklets.frames is None:
        return replace(tracklets, people=people)
    first = (tracklets.frames.names[row] for row in tracklets.start.tolist())
    return replace(tracklets, people=people, names=tuple(name.rpartition("/")[2].partition("F")[0] for name in first))


def _listed_queries(path: Path, keys: list[tuple[int, int, int]]) -> Labels:
    """Return the rows of the tracklets in a JSON list of {"img_paths": [...]}."""
    rows = {key: row for row, key in enumerate(keys)}
    try:
        names = [str(entry["img_paths"][0]) for entry in json.loads(read_text(path))]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise DataError(f"{path}: expected a JSON list of objects with img_paths") from error
    queries = []
    for entry, name in enumerate(names):
        key = parse_name(name.rpartition("/")[2], f"{path}: entry {entry}")
        if key not in rows:
            raise DataError(f"{path}: entry {entry}: no tracklet with the frame {name}")
        queries.append(rows[key])
    return np.array(queries, dtype=np.int64)


def _named_frames(folder: Path, side: Side, path: Path, table: Labels) -> Files:
    lines = [line.strip() for line in read_lines(path)]
    if len(lines) != table[-1, 1]:
        raise DataError(f"{path}: {len(lines)} lines; the last tracklet ends in line {table[-1, 1]}")
    rows = np.repeat(np.arange(len(table)), table[:, 1] - table[:, 0] + 1)
    frames = []
    for line, (name, row) in enumerate(zip(lines, rows.tolist(), strict=True), start=1):
        person, camera, _ = parse_name(name, f"{path}: line {line}")
        if (person, camera) != (table[row, 2], table[row, 3]):
            raise DataError(
                f"{path}: line {line}: {name} is person {person}, camera {camera}; "
                f"tracklet {row + 1} is of person {table[row, 2]}, camera {table[row, 3]}"
            )
        frames.append(f"bbox_{side}/{name[:4]}/{name}")
    return Files(folder, tuple(frames))


def parse_name(name: str, place: str) -> tuple[int, int, int]:
    """Return person, camera and tracklet of a frame's file name.

    >>> parse_name("0065C1T0002F0016.jpg", "train_name.txt: line 1")
    (65, 1, 2)
    >>> parse_name("00-1C3T0001F001.jpg", "test_name.txt: line 1")
    (-1, 3, 1)
    """
    match = NAME.fullmatch(name)
    if match is None:
        raise DataError(f"{place}: {name!r}; expected a name such as 0065C1T0002F0016.jpg")
    person = JUNK if match[1] == "00-1" else int(match[1])
    return person, int(match[2]), int(match[3])
