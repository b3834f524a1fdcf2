"""CSV and Parquet tables with something wrong in one place."""

from __future__ import annotations

import numpy as np
import pytest

from reweigh.lab.data import table
from reweigh.lab.data.source import columns

GOOD = "a,b,label\n" + "1,2,x\n3,4,y\n" * 5
LONG = "q" * 200_000


def with_line(line: str) -> bytes:
    return (GOOD + line + "\n").encode()


FEATURES = {
    "empty": b"",
    "empty lines": b"\n\n\n",
    "byte order mark only": b"\xef\xbb\xbf",
    "header only": b"a,b,label\n",
    "no label column": GOOD.replace("label", "kind").encode(),
    "label only": b"label\nx\ny\n",
    "column twice": GOOD.replace("a,b", "a,a").encode(),
    "label twice": GOOD.replace("a,b", "a,label").encode(),
    "no header": GOOD.removeprefix("a,b,label\n").encode(),
    "one class": GOOD.replace("y", "x").encode(),
    "two rows": b"a,label\n1,x\n2,y\n",
    "zero byte": with_line("1,2\0,x"),
    "long word for a number": with_line(f"1,{LONG},x"),
    "quote never closed": with_line('1,2,"x'),
    "quote in the middle": with_line('1,"2"3,x'),
}
FEATURES |= {
    f"line {line!r}": with_line(line)
    for line in (
        "1,2", "1", "1,2,x,9", "1,2,x,", "1,two,x", "1,inf,x", "1,-Infinity,x", "1,1e999,x", "1,0x10,x", "1,1.2.3,x",
        "1,'2',x", "1,1_000,x", "1,1_0.5,x", "1,=cmd|' /C calc'!A0,x", "1,2e308,x", "1,−2,x", "a,two,x", "1,2\t,x,",
    )
}  # fmt: skip
FEATURES["too large to standardise"] = (GOOD + "1e300,2,x\n-1e300,2,y\n" * 5).encode()

TEXTS = {
    "no text column": b"words,label\ngood,1\nbad,0\n",
    "empty text": b"text,label\n" + b"good,1\nbad,0\n" * 5 + b",1\n",
    "blank text": b"text,label\n" + b"good,1\nbad,0\n" * 5 + b'"  ",1\n',
    "comma without quotes": b"text,label\n" + b"good,1\nbad,0\n" * 5 + b"so, so,1\n",
}

CASES = {**FEATURES, **TEXTS}


def test_there_are_many() -> None:
    assert len(CASES) >= 35


@pytest.mark.parametrize("case", CASES)
def test_tables_are_refused(case, tmp_path, refused) -> None:
    path = tmp_path / "own.csv"
    path.write_bytes(CASES[case])
    message = refused(lambda: table.load(path, text="text" if case in TEXTS else None), "own.csv")
    if case.startswith("line "):
        assert "line 12" in message
    assert len(message) < 2000


def test_the_good_one_loads(tmp_path) -> None:
    (tmp_path / "own.csv").write_text(GOOD)
    assert table.load(tmp_path / "own.csv").num_classes == 2


@pytest.mark.parametrize("keep", [0, 4, 100, -1, -8, -100])
def test_cut_parquet(keep, tmp_path, refused) -> None:
    pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow (extra tables)")
    from pyarrow import parquet

    path = tmp_path / "own.parquet"
    parquet.write_table(pa.table({"a": [1.0] * 10, "label": [0, 1] * 5}), path)
    path.write_bytes(path.read_bytes()[:keep])
    refused(lambda: table.load(path), "own.parquet")


@pytest.mark.parametrize("raw", [b"hello", b"PAR1", b"PAR1PAR1", b"PAR1" + bytes(100) + b"\xff\xff\xff\x7fPAR1"])
def test_invented_parquet(raw, tmp_path, refused) -> None:
    pytest.importorskip("pyarrow", reason="Parquet needs pyarrow (extra tables)")
    path = tmp_path / "own.parquet"
    path.write_bytes(raw)
    refused(lambda: table.load(path), "own.parquet")


def test_parquet_that_repeats_one_number_is_refused_by_its_rows(tmp_path, refused) -> None:
    pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow (extra tables)")
    from pyarrow import parquet

    path = tmp_path / "own.parquet"
    parquet.write_table(pa.table({"a": pa.array(np.zeros(10**6))}), path, compression="zstd")
    assert path.stat().st_size < 10**4
    told = refused(lambda: columns.read(path, max_bytes=7 * 10**6), "own.parquet: 8000000 bytes unpacked")
    assert "more than the limit of 7000000" in told
    assert columns.read(path, max_bytes=8 * 10**6).names == ("a",)


def test_parquet_that_repeats_one_text_keeps_it_once(tmp_path, peak) -> None:
    pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow (extra tables)")
    from pyarrow import parquet

    path = tmp_path / "own.parquet"
    text = pa.array(["x" * 1000]).take(pa.array(np.zeros(10**5, np.int64)))
    parquet.write_table(pa.table({"text": text}), path, compression="zstd")
    assert columns.read(path).strings("text") == ["x" * 1000] * 10**5
    assert peak(lambda: columns.read(path).strings("text")) < 2 * 10**7


def test_parquet_that_repeats_one_long_text_is_refused(tmp_path, refused, peak) -> None:
    """Each row would be copied when its spaces are removed."""
    pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow (extra tables)")
    from pyarrow import parquet

    path = tmp_path / "own.parquet"
    entries = pa.array(["x" * 10**6 + " ", "y" * 10**6 + " "])
    labels = pa.DictionaryArray.from_arrays(pa.array(np.arange(2000) % 2, pa.int32()), entries)
    parquet.write_table(pa.table({"a": np.arange(2000.0), "label": labels}), path, compression="zstd")
    assert path.stat().st_size < 10**5
    told = refused(lambda: table.load(path), "own.parquet: 2000002000 characters of text, more than the limit")
    assert len(told) < 200
    assert peak(lambda: refused(lambda: table.load(path), "own.parquet")) < 10**8


def test_long_names_are_shortened_in_messages(tmp_path, refused) -> None:
    path = tmp_path / "own.csv"
    path.write_text(GOOD.replace("x", LONG))
    told = refused(lambda: table.load(path), "class name 'qqq")
    assert f"has {len(LONG):,} characters; at most 1,000" in told
    path.write_text(GOOD.replace("x", "y").replace("y", LONG))
    assert len(refused(lambda: table.load(path), "own.csv")) < 300
    path.write_text(",".join([f"{LONG}{k}" for k in range(50)]) + "\n" + ",".join("1" * 50) + "\n")
    assert len(refused(lambda: table.load(path), "own.csv: no column 'label'")) < 1200


def test_parquet_names_that_mean_two_columns(tmp_path, refused) -> None:
    pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow (extra tables)")
    from pyarrow import parquet

    path = tmp_path / "own.parquet"
    for names in (("a", "a"), ("a", "a.b")):
        parquet.write_table(pa.table([pa.array([{"b": "x"}]), pa.array(["y"])], names), path)
        refused(lambda: columns.read(path), "own.parquet: a column name occurs twice")
