"""MARS: a generated copy in the official layout, the real index, a real small copy, and broken files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from reweigh.errors import DataError
from reweigh.lab.data import mars

scipy_io = pytest.importorskip("scipy.io", reason="MARS's index needs scipy (extra retrieval)")


class Track(NamedTuple):
    person: int
    camera: int
    length: int


TRAIN = [Track(p, c, 2 + c) for p in (1, 3, 7) for c in (1, 2)]
TEST = [Track(-1, 1, 3), Track(-1, 6, 2), Track(0, 2, 4), Track(0, 3, 2)] + [
    Track(p, c, 2) for p in (2, 4, 6) for c in (1, 2)
]
TEST.append(Track(6, 2, 3))
QUERIES = [5, 6, 7, 8]
"""Rows counted from 1: both cameras of persons 2 and 4."""


def frame_names(tracks: list[Track]) -> list[str]:
    seen: Counter[int] = Counter()
    names = []
    for person, camera, length in tracks:
        seen[person] += 1
        word = "00-1" if person == -1 else f"{person:04d}"
        names += [f"{word}C{camera}T{seen[person]:04d}F{frame + 1:03d}.jpg" for frame in range(length)]
    return names


def table(tracks: list[Track]) -> np.ndarray:
    last = np.cumsum([track.length for track in tracks])
    first = np.concatenate([[1], last[:-1] + 1])
    return np.array([(a, b, t.person, t.camera) for a, b, t in zip(first, last, tracks, strict=True)], np.int32)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "MARS"
    (folder / "info").mkdir(parents=True)
    for side, tracks in (("train", TRAIN), ("test", TEST)):
        names = frame_names(tracks)
        for i, name in enumerate(names):
            path = folder / f"bbox_{side}" / name[:4] / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 8), (5 * i, 0, 0)).save(path)
        (folder / "info" / f"{side}_name.txt").write_bytes("".join(f"{name}\r\n" for name in names).encode())
        scipy_io.savemat(folder / "info" / f"tracks_{side}_info.mat", {f"track_{side}_info": table(tracks)})
    scipy_io.savemat(folder / "info" / "query_IDX.mat", {"query_IDX": np.array([QUERIES], np.uint16)})
    return folder


def test_the_index(root: Path) -> None:
    index = mars.read_index(root)
    assert (len(index.train), len(index.test)) == (6, 11)
    assert index.train.persons.tolist() == [1, 1, 3, 3, 7, 7]
    assert index.train.cameras.tolist() == [1, 2] * 3
    assert index.train.lengths.tolist() == [3, 4] * 3
    assert np.flatnonzero(index.test.junk).tolist() == [0, 1]
    assert np.flatnonzero(index.test.distractor).tolist() == [2, 3]
    assert index.queries.tolist() == [4, 5, 6, 7]
    assert index.queries.dtype == index.test.persons.dtype == np.int64
    assert (index.test.people[0], index.test.names[0]) == ("00-1", "00-1C1T0001")
    assert (index.train.people[1], index.train.names[1]) == ("0001", "0001C2T0002")
    assert repr(index.train) == "Tracklets(6 of 3 ids, 21 frames)"


def test_frames_are_those_between_first_and_last_both_included(root: Path) -> None:
    index = mars.read_index(root)
    assert [name.rpartition("/")[2] for name in index.train.of(1).names] == [
        f"0001C2T0002F{frame:03d}.jpg" for frame in (1, 2, 3, 4)
    ]
    assert index.test.of(0).names[0] == "bbox_test/00-1/00-1C1T0001F001.jpg"
    assert index.test.of(10)[0].shape == (8, 4, 3)


def test_training_frames_with_persons_as_classes(root: Path) -> None:
    data = mars.load(root)
    assert data.class_names == ("0001", "0003", "0007")
    assert data.train.labels.tolist() == [0] * 7 + [1] * 7 + [2] * 7
    assert len(data.test) == 0
    assert data.train.inputs[0].shape == (8, 4, 3)


def test_the_index_needs_neither_images_nor_names(root: Path) -> None:
    for side in ("train", "test"):
        (root / "info" / f"{side}_name.txt").unlink()
    index = mars.read_index(root.parent)
    assert index.test.lengths.sum() == 26
    assert index.test.frames is None
    with pytest.raises(DataError, match="the index has no frames"):
        index.test.of(0)


def test_folders_alone_give_the_same_tracklets(root: Path) -> None:
    official, found = mars.read_index(root), mars.scan(root)
    for name in ("start", "stop", "persons", "cameras"):
        assert (getattr(found.train, name) == getattr(official.train, name)).all()
        assert (getattr(found.test, name) == getattr(official.test, name)).all()
    assert found.train.frames == official.train.frames
    whole = mars.load(root)
    for path in (root / "info").iterdir():
        path.unlink()
    assert mars.load(root).hash == whole.hash


def test_without_a_list_every_camera_of_a_person_seen_twice_is_a_query(root: Path) -> None:
    assert mars.scan(root).queries.tolist() == [4, 5, 6, 7, 8, 9]


def test_listed_queries(root: Path) -> None:
    path = root / "gtPepper" / "query.json"
    path.parent.mkdir()
    entry = {"pid": 6, "camid": 1, "img_paths": ["bbox_test/0006/0006C2T0003F001.jpg"], "tracklet_length": 3}
    path.write_text(json.dumps([entry]))
    assert mars.scan(root).queries.tolist() == [10]
    for content, told in (
        ("[", "expected a JSON list"),
        ("3", "expected a JSON list"),
        ("[" * 100_000, "expected a JSON list"),
        ("[{}]", "expected a JSON list"),
        ('[{"img_paths": []}]', "expected a JSON list"),
        ('[{"img_paths": ["x.jpg"]}]', "entry 0: 'x.jpg'"),
        ('[{"img_paths": ["0008C1T0001F001.jpg"]}]', "entry 0: no tracklet with the frame"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=f"query.json: {told}"):
            mars.scan(root)


def test_frames_beyond_999_stay_in_order(root: Path) -> None:
    folder = root / "bbox_train" / "0009"
    folder.mkdir()
    for frame in ("F998", "F999", "F1000", "F1001"):
        Image.new("RGB", (2, 2)).save(folder / f"0009C1T0001{frame}.jpg")
    frames = mars.scan(root).train.of(6).names
    assert [int(name.rpartition("F")[2][:-4]) for name in frames] == [998, 999, 1000, 1001]


def info(name: str, content: bytes | str) -> Callable[[Path], object]:
    return lambda root: (root / "info" / name).write_bytes(content.encode() if isinstance(content, str) else content)


def mat(name: str, **variables: object) -> Callable[[Path], object]:
    return lambda root: scipy_io.savemat(root / "info" / name, variables)


def rows(edit: Callable[[np.ndarray], object]) -> Callable[[Path], object]:
    """tracks_train_info.mat with an edited table."""

    def change(root: Path) -> None:
        changed = table(TRAIN)
        edit(changed)
        scipy_io.savemat(root / "info" / "tracks_train_info.mat", {"track_train_info": changed})

    return change


def put(row: int, column: int, value: int) -> Callable[[np.ndarray], object]:
    return lambda array: array.__setitem__((row, column), value)


def cut(name: str, keep: int) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        path = root / "info" / name
        path.write_bytes(path.read_bytes()[:keep])

    return change


def names(edit: Callable[[list[str]], object]) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        listed = frame_names(TRAIN)
        edit(listed)
        (root / "info" / "train_name.txt").write_text("".join(f"{name}\n" for name in listed))

    return change


TRACKS, QUERY = "tracks_train_info.mat", "query_IDX.mat"
BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no tracks": (lambda root: (root / "info" / TRACKS).unlink(), r"tracks_train_info\.mat: no such file"),
    "no queries": (lambda root: (root / "info" / QUERY).unlink(), r"query_IDX\.mat: no such file"),
    "empty mat": (info(TRACKS, b""), r"tracks_train_info\.mat: not a readable"),
    "text for a mat": (info(TRACKS, "1 2 3 4\n" * 40), r"tracks_train_info\.mat: not a readable"),
    "HDF5 (v7.3)": (info(TRACKS, b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\0" * 99), "not a readable"),
    "mat cut in its header": (cut(TRACKS, 100), "not a readable"),
    "mat cut in its matrix": (cut(TRACKS, 180), "not a readable"),
    "mat cut at its end": (cut(TRACKS, 250), "not a readable"),
    "other variable": (mat(TRACKS, tracks=table(TRAIN)), "no variable track_train_info; it holds tracks"),
    "no variable": (mat(TRACKS), "no variable track_train_info; it holds nothing"),
    "floats": (mat(TRACKS, track_train_info=table(TRAIN) / 2), "track_train_info holds fractions"),
    "text variable": (mat(TRACKS, track_train_info="tracks"), "track_train_info is text"),
    "a struct": (mat(TRACKS, track_train_info={"a": 1}), "track_train_info is a struct"),
    "three columns": (mat(TRACKS, track_train_info=table(TRAIN)[:, :3]), r"shape \(6, 3\); expected N x 4"),
    "transposed": (mat(TRACKS, track_train_info=table(TRAIN)[:5].T), r"shape \(4, 5\); expected N x 4"),
    "no rows": (mat(TRACKS, track_train_info=np.zeros((0, 4), np.int32)), "expected"),
    "gap between tracks": (rows(put(2, 0, 9)), r"row 3 does not start after the previous one: \[9, 10, 3, 1\]"),
    "overlap of tracks": (rows(put(2, 0, 7)), "row 3 does not start"),
    "first track late": (rows(put(0, 0, 2)), "row 1 does not start"),
    "counted from 0": (rows(lambda array: array.__isub__(1)), "row 1 does not start"),
    "backward track": (rows(lambda a: (put(1, 1, 3)(a), put(2, 0, 4)(a))), "row 2 ends before it starts"),
    "person -2": (rows(put(0, 2, -2)), "row 1 has an impossible person"),
    "camera 0": (rows(put(4, 3, 0)), "row 5 has an impossible camera"),
    "person of another": (rows(put(2, 2, 5)), r"train_name\.txt: line 8: 0003C1T0001F001\.jpg is person 3"),
    "camera of another": (rows(put(0, 3, 4)), r"train_name\.txt: line 1: .* tracklet 1 is of person 1, camera 4"),
    "name of another": (names(lambda a: a.__setitem__(4, "0003C2T0002F002.jpg")), "line 5: .* is person 3"),
    "name cut": (names(lambda a: a.__setitem__(4, "0001C2.jpg")), r"line 5: '0001C2\.jpg'; expected a name"),
    "name climbs": (names(lambda a: a.__setitem__(0, "../../etc/0001C1T0001F001.jpg")), "line 1"),
    "name in other digits": (names(lambda a: a.__setitem__(0, "000\u0661C1T0001F001.jpg")), "line 1"),
    "empty name": (names(lambda a: a.__setitem__(3, "")), "line 4: ''"),
    "a name too few": (names(lambda a: a.pop()), "20 lines; the last tracklet ends in line 21"),
    "a name too many": (names(lambda a: a.append("0007C2T0002F005.jpg")), "22 lines"),
    "no names": (names(lambda a: a.clear()), "0 lines"),
    "names not text": (info("train_name.txt", b"\xff\n"), r"train_name\.txt: line 1: byte"),
    "query 0": (mat(QUERY, query_IDX=np.array([[5, 0]], np.uint16)), "query 2 is row 0; expected 1 to 11"),
    "query too large": (mat(QUERY, query_IDX=np.array([[12]], np.uint16)), "query 1 is row 12; expected 1 to 11"),
    "query for junk": (mat(QUERY, query_IDX=np.array([[5, 1]], np.uint16)), "query 2 is row 1, a junk"),
    "query for a distractor": (mat(QUERY, query_IDX=np.array([[3]], np.uint16)), "query 1 is row 3, a junk"),
    "no query": (mat(QUERY, query_IDX=np.zeros((1, 0), np.uint16)), "query_IDX is empty"),
    "queries as floats": (mat(QUERY, query_IDX=np.array([[5.5]])), "query_IDX holds fractions"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_index_files_are_refused_by_file_and_place(root: Path, what: str) -> None:
    change, told = BROKEN[what]
    change(root)
    with pytest.raises(DataError, match=told) as caught:
        mars.read_index(root)
    assert str(root / "info") in str(caught.value)


def test_missing_frames_are_all_counted(root: Path) -> None:
    for name in frame_names(TRAIN)[:7]:
        (root / "bbox_train" / "0001" / name).unlink()
    with pytest.raises(DataError, match=r"7 of 21 listed files are missing: bbox_train/0001/.* and 2 more"):
        mars.load(root)


def test_strays_in_the_folders_are_refused(root: Path) -> None:
    stray = root / "bbox_test" / "0002" / "notes.txt"
    stray.write_text("")
    with pytest.raises(DataError, match=r"0002/notes\.txt: 'notes\.txt'; expected a name"):
        mars.scan(root)
    stray.unlink()
    (root / "bbox_test" / "0002" / "0004C1T0001F009.jpg").write_text("")
    with pytest.raises(DataError, match="a frame of person 0004 is in the folder of 0002"):
        mars.scan(root)


def test_empty_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither info/ nor bbox_train/"):
        mars.load(tmp_path)
    (tmp_path / "bbox_train").mkdir()
    with pytest.raises(DataError, match="bbox_train: no frames"):
        mars.load(tmp_path)
    with pytest.raises(DataError, match="bbox_test: no such folder"):
        mars.scan(tmp_path)
