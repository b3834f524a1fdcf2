from __future__ import annotations

import pytest

from reweigh.errors import DataError
from reweigh.lab.data.source.text import read_bytes, read_lines, read_text


def test_lines_of_both_kinds_without_empty_ones_at_the_end(tmp_path) -> None:
    path = tmp_path / "names.txt"
    path.write_bytes("\ufeffone\r\ntwo\n\nthr\u2028ee\n\n\r\n".encode())
    assert read_lines(path) == ["one", "two", "", "thr\u2028ee"]


def test_a_bad_byte_is_named_with_its_line(tmp_path) -> None:
    path = tmp_path / "names.txt"
    path.write_bytes(b"one\ntwo\nth\xe9ee\n")
    with pytest.raises(DataError, match=r"names.txt: line 3: byte 0xe9 at offset 10 is not utf-8; save it as UTF-8"):
        read_text(path)
    assert read_text(path, encoding="latin1").splitlines()[2] == "théee"


def test_limits_and_missing_files(tmp_path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_bytes(path, 5) == b"12345"
    with pytest.raises(DataError, match="5 bytes, more than the limit of 4"):
        read_bytes(path, 4)
    with pytest.raises(DataError, match="no such file"):
        read_bytes(tmp_path / "b")
    with pytest.raises(DataError, match="not a regular file"):
        read_bytes(tmp_path)
