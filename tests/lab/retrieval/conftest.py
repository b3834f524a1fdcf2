"""A small MARS in the official layout, with scores computed by hand."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

TRAIN = [(person, camera, 2 + camera) for person in (1, 3, 7) for camera in (1, 2)]
TEST = [(-1, 1, 3), (0, 2, 4), (2, 1, 2), (2, 2, 2), (4, 1, 2), (4, 2, 2), (6, 1, 2), (6, 2, 3), (2, 3, 2)]
QUERIES = [3, 4, 5, 6]
"""(person, camera, frames) of each tracklet; queries are rows counted from 1."""


@pytest.fixture
def real_mars() -> Path:
    """The real small copy of MARS, or skip the test."""
    root = Path(os.environ.get("REWEIGH_DATA", ""), "mini_mars")
    if not os.environ.get("REWEIGH_DATA") or not root.is_dir():
        pytest.skip("no mini_mars below REWEIGH_DATA: no real data to test on")
    return root


@pytest.fixture
def small_mars(tmp_path: Path) -> Path:
    """Three persons in train; junk, a distractor and three persons in test; every frame of one colour."""
    scipy_io = pytest.importorskip("scipy.io", reason="MARS's index needs scipy (extra retrieval)")
    folder = tmp_path / "MARS"
    (folder / "info").mkdir(parents=True)
    for side, tracks in (("train", TRAIN), ("test", TEST)):
        names, colours, seen = [], [], Counter[int]()
        for person, camera, length in tracks:
            seen[person] += 1
            word = "00-1" if person == -1 else f"{person:04d}"
            names += [f"{word}C{camera}T{seen[person]:04d}F{frame + 1:03d}.jpg" for frame in range(length)]
            colours += [(30 * (person + 1), 40 * camera, 5 * frame) for frame in range(length)]
        for name, colour in zip(names, colours, strict=True):
            path = folder / f"bbox_{side}" / name[:4] / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 16), colour).save(path)
        last = np.cumsum([length for _, _, length in tracks])
        first = last - [length - 1 for _, _, length in tracks]
        table = np.array([(a, b, t[0], t[1]) for a, b, t in zip(first, last, tracks, strict=True)], np.int32)
        (folder / "info" / f"{side}_name.txt").write_text("".join(f"{name}\n" for name in names))
        scipy_io.savemat(folder / "info" / f"tracks_{side}_info.mat", {f"track_{side}_info": table})
    scipy_io.savemat(folder / "info" / "query_IDX.mat", {"query_IDX": np.array([QUERIES], np.uint16)})
    return folder
