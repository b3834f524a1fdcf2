"""margins.bin: round trips, incomplete ends, rewinding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reweigh.errors import DataError
from reweigh.lab.record import Header, Record, pack, read_margins, read_p, unpack

MARGINS, RIVALS = np.array([-2.5, 0.0, 1.25, np.inf, -1e6]), np.array([1, 0, 9, 65535, 2])


def write(folder: Path, header: Header, *, finish: bool = False) -> Path:
    with Record(folder, header, {}) as record:
        for step in (10, 20, 30):
            record.append({"step": step}, None, (MARGINS + step, RIVALS))
        if finish:
            record.finish({"final": {"accuracy": 1}})
    return folder


def test_margins_are_read_as_they_were_written(tmp_path: Path, header: Header) -> None:
    found = read_margins(write(tmp_path / "run", header))
    assert found.steps.tolist() == [10, 20, 30]
    np.testing.assert_array_equal(found.rivals[:, 2], RIVALS)
    np.testing.assert_array_equal(found.margins[:, 0], [7.5, 10, 11.25, 65504, -65504])
    assert read_p(tmp_path / "run").p.shape == (5, 0), "p was not recorded"


def test_an_incomplete_end_is_ignored_and_removed(tmp_path: Path, header: Header) -> None:
    folder = write(tmp_path / "run", header)
    path = folder / "margins.bin"
    whole = path.read_bytes()
    size = len(whole) // 3
    assert size == 8 + 5 * 4
    path.write_bytes(whole[:-1])
    assert read_margins(folder).steps.tolist() == [10, 20]
    with Record(folder, header, {}) as record:
        record.rewind(30)
        assert path.read_bytes() == whole[: 2 * size]


def test_rewinding_removes_later_records(tmp_path: Path, header: Header) -> None:
    folder = write(tmp_path / "run", header)
    before = (folder / "margins.bin").read_bytes()
    with Record(folder, header, {}) as record:
        record.rewind(10)
        assert read_margins(folder).steps.tolist() == [10]
        for step in (20, 30):
            record.append({"step": step}, None, (MARGINS + step, RIVALS))
    assert (folder / "margins.bin").read_bytes() == before


def test_values_that_do_not_fit_are_refused(tmp_path: Path, header: Header) -> None:
    with Record(tmp_path / "run", header, {}) as record:
        with pytest.raises(ValueError, match=r"margins has shape \(2,\); expected \(5,\)"):
            record.append({"step": 1}, None, ([1.0, 2.0], RIVALS))
        with pytest.raises(ValueError, match="rivals must be class ids below 65536"):
            record.append({"step": 1}, None, (MARGINS, RIVALS + 1))
        assert record.last_step == -1
    path = write(tmp_path / "again", header) / "margins.bin"
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(DataError, match="the steps do not increase"):
        read_margins(tmp_path / "again")


def test_an_archive_contains_margins(tmp_path: Path, header: Header) -> None:
    folder = write(tmp_path / "run", header, finish=True)
    pack([folder], tmp_path / "runs.zip")
    unpack(tmp_path / "runs.zip", tmp_path / "elsewhere")
    there = tmp_path / "elsewhere" / "run" / "margins.bin"
    assert there.read_bytes() == (folder / "margins.bin").read_bytes()
