"""A user's own tracklets: the folder and the table give the same, and what is out of place is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reweigh.errors import DataError
from reweigh.lab.data import mars, registry, tracklets

TRACKS = {
    "train/alice/front/1": 2,
    "train/alice/yard/1": 10,
    "train/bob/front/1": 1,
    "query/carol/front/1": 2,
    "gallery/carol/front/2": 1,
    "gallery/carol/yard/1": 3,
    "gallery/distractor/yard/1": 1,
    "gallery/junk/front/1": 2,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "videos"
    for number, (place, frames) in enumerate(TRACKS.items()):
        (root / place).mkdir(parents=True)
        for frame in range(frames):
            Image.new("RGB", (4, 8), (number, frame, 0)).save(root / place / f"{frame + 1}.png")
    return root


@pytest.fixture
def table(folder: Path) -> Path:
    lines = ["path,person,camera,tracklet,part"]
    for place, frames in TRACKS.items():
        part, person, camera, tracklet = place.split("/")
        lines += [f"{place}/{frame + 1}.png,{person},{camera},{tracklet},{part}" for frame in range(frames)]
    path = folder / "frames.csv"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(params=["folder", "table"])
def source(request: pytest.FixtureRequest, folder: Path) -> Path:
    if request.param == "folder":
        return folder
    path: Path = request.getfixturevalue("table")
    return path


def test_the_index(source: Path) -> None:
    index = tracklets.read_index(source)
    assert index.train.persons.tolist() == [1, 1, 2]
    assert index.train.cameras.tolist() == [1, 2, 1]
    assert index.train.lengths.tolist() == [2, 10, 1]
    assert index.train.people == ("alice", "alice", "bob")
    assert index.train.names == ("train/alice/front/1", "train/alice/yard/1", "train/bob/front/1")
    assert index.train.of(1).names[-2:] == ("train/alice/yard/1/9.png", "train/alice/yard/1/10.png")
    assert index.test.persons.tolist() == [3, 3, 3, 0, -1]
    assert index.test.cameras.tolist() == [1, 1, 2, 2, 1]
    assert index.queries.tolist() == [0]
    assert index.test.of(2)[1][0, 0].tolist() == [5, 1, 0]


def test_frames_go_by_their_numbers_whatever_they_end_in(folder: Path) -> None:
    place = folder / "train/alice/yard/1"
    for frame in (1, 9):
        (place / f"{frame}.png").rename(place / f"{frame}.jpeg")
    names = [Path(name).stem for name in tracklets.read_index(folder).train.of(1).names]
    assert names == [str(frame + 1) for frame in range(10)]


def test_training_frames_through_the_registry(source: Path) -> None:
    data = registry.load("tracklets", source)
    assert data.class_names == ("alice", "bob")
    assert data.train.labels.tolist() == [0] * 12 + [1]
    assert len(data.test) == 0
    assert registry.load(f"tracklets:{source}").hash == data.hash
    with pytest.raises(ValueError, match=r"root is elsewhere, but tracklets:.* includes a folder"):
        registry.load(f"tracklets:{source}", "elsewhere")
    small = registry.load("tracklets", source, size=(4, 2))
    assert small.kind == "images"
    assert (small.train.shape, small.test.shape) == ((4, 2, 3), (4, 2, 3))
    with pytest.raises(ValueError, match=r"size \(image_size of a run\) does not apply to digits"):
        registry.load("digits", size=(4, 4))


def test_both_give_the_same_data(folder: Path, table: Path) -> None:
    rows = table.read_bytes()
    table.unlink()
    whole = tracklets.load(folder).hash
    table.write_bytes(rows)
    assert tracklets.load(table).hash == whole


def test_default_queries_are_one_per_person_and_camera(folder: Path) -> None:
    (folder / "query").rename(folder / "away")
    assert tracklets.read_index(folder).queries.tolist() == [0, 1]
    assert mars.default_queries(np.array([10**12, 10**12, 5]), np.array([1, 2, 1])).tolist() == [0, 1]


def test_numbers_stay_numbers(folder: Path) -> None:
    for name, number in (("alice", "0007"), ("bob", "12")):
        (folder / "train" / name).rename(folder / "train" / number)
    (folder / "query" / "carol").rename(folder / "query" / "30")
    (folder / "gallery" / "carol").rename(folder / "gallery" / "30")
    index = tracklets.read_index(folder)
    assert index.train.persons.tolist() == [7, 7, 12]
    assert index.test.persons.tolist() == [30, 30, 30, 0, -1]
    (folder / "train" / "12").rename(folder / "train" / "7")
    with pytest.raises(DataError, match="two names of a person are the same number; rename one: 0007, 30, 7"):
        tracklets.read_index(folder)


def test_numbers_too_large_for_an_id_are_names(folder: Path) -> None:
    huge = "9" * 30
    (folder / "train" / "alice").rename(folder / "train" / "1")
    (folder / "train" / "bob").rename(folder / "train" / huge)
    for part in ("query", "gallery"):
        (folder / part / "carol").rename(folder / part / "30")
    index = tracklets.read_index(folder)
    assert index.train.persons.tolist() == [1, 1, 3]
    assert index.test.persons.tolist() == [2, 2, 2, 0, -1]


def test_an_index_by_the_name_of_its_data(folder: Path) -> None:
    assert len(tracklets.index_of("tracklets", folder).test) == 5
    with pytest.raises(ValueError, match="data must be 'mars' or 'tracklets', not 'cifar10'"):
        tracklets.index_of("cifar10", folder)
    with pytest.raises(DataError, match="neither info/ nor bbox_train/"):
        tracklets.index_of("mars", folder)


def empty(root: Path) -> None:
    (root / "gallery" / "carol" / "yard" / "2").mkdir()


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty tracklet": (empty, "gallery/carol/yard/2: the tracklet is empty"),
    "file among persons": (
        lambda root: (root / "train" / "notes.txt").write_text(""),
        r"train/notes\.txt: unexp",
    ),
    "frames a level up": (
        lambda root: (root / "train/bob/front/1.png").write_text(""),
        r"bob/front/1\.png: unexp",
    ),
    "no image": (
        lambda root: (root / "train/bob/front/1/x.txt").write_text(""),
        r"1/x\.txt: does not have the suffix",
    ),
    "no gallery": (lambda root: (root / "gallery").rename(root / "away"), "no gallery"),
    "query for nobody": (lambda root: (root / "query/junk").mkdir() or move(root), "a query for 'junk'"),
}


def move(root: Path) -> None:
    (root / "gallery/junk/front").rename(root / "query/junk/front")


@pytest.mark.parametrize("what", BROKEN)
def test_broken_folders_are_refused(folder: Path, what: str) -> None:
    change, told = BROKEN[what]
    change(folder)
    with pytest.raises(DataError, match=told):
        tracklets.read_index(folder)


ROW = "train/bob/front/1/1.png,bob,front,1,train"
LINES: dict[str, tuple[str, str, str]] = {
    "other part": (ROW, ROW.replace(",train", ",test"), "line 14: part is 'test'; expected train, query, gallery"),
    "no person": (ROW, ROW.replace("bob,", ",", 1), "column 'person' must hold a value: line 14"),
    "a path that climbs": (ROW, f"../{ROW}", r"line 14: '\.\./train.*' leads out of the data folder"),
    "a missing frame": (ROW, ROW.replace("1.png", "2.png"), r"1 of 22 listed files are missing: train/bob/front/1/2"),
    "no column": ("tracklet,part", "track,part", "no column 'tracklet'; expected path, person, camera"),
}


@pytest.mark.parametrize("what", LINES)
def test_broken_tables_are_refused_by_line(table: Path, what: str) -> None:
    old, new, told = LINES[what]
    table.write_text(table.read_text().replace(old, new))
    with pytest.raises(DataError, match=told):
        tracklets.read_index(table)


def test_missing_parts_and_reserved_names(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder or table"):
        tracklets.load(tmp_path / "nothing")
    with pytest.raises(DataError, match="no tracklets; expected train"):
        tracklets.load(tmp_path)
    (folder / "train" / "bob").rename(folder / "train" / "junk")
    with pytest.raises(DataError, match="training person 'junk'"):
        tracklets.load(folder)
    (folder / "train").rename(tmp_path / "away")
    with pytest.raises(DataError, match="no training part"):
        tracklets.load(folder)
    assert len(tracklets.read_index(folder).train) == 0
    (folder / "query").rename(folder / "asked")
    (folder / "gallery" / "carol" / "front").rename(tmp_path / "front")
    with pytest.raises(DataError, match="no queries, and no person in the gallery is seen by two cameras"):
        tracklets.read_index(folder)
