from __future__ import annotations

import csv
import warnings

import numpy as np
import pytest

from reweigh.errors import DataError, DataWarning
from reweigh.lab.data import table

ROWS = [(f"{i}", f"{100 + 2 * i}", "5", "yes" if i % 3 else "no") for i in range(10)]


def write(path, rows=ROWS, header=("a", "b", "c", "label"), end="\n", mark=""):
    path.write_bytes((mark + end.join(",".join(row) for row in [header, *rows]) + end).encode())
    return path


def test_features_are_standardised_by_the_training_part(tmp_path) -> None:
    data = table.load(write(tmp_path / "t.csv"))
    assert repr(data) == "Dataset('t', features 3, 2 classes, 8 train + 2 noisy hold-out)"
    assert data.class_names == ("no", "yes")
    assert data.train.inputs[:, :2].mean(axis=0) == pytest.approx([0, 0], abs=1e-6)
    assert data.train.inputs[:, :2].std(axis=0) == pytest.approx([1, 1], abs=1e-6)
    assert (data.train.inputs[:, 2] == 0).all()
    assert (data.test.inputs[:, 2] == 0).all()


def test_large_offsets_keep_their_digits(tmp_path) -> None:
    rows = [(str(1_700_000_000 + i), "n" if i < 5 else "y") for i in range(10)]
    data = table.load(write(tmp_path / "t.csv", rows, ("time", "label")))
    assert len(np.unique(data.train.inputs)) == 8


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (("a", "b", "NA", "nan"), ["'NA' in 2 rows, 'nan' in 2 rows, a common spelling of a missing value"]),
        (("1", "1.0", "2"), ["'1' in 4 rows, '1.0' in 3 rows, the same number: kept as different classes"]),
        (("0", "00", "1e0", "?", "1"), ["'?' in 2 rows", "'0' in 2 rows, '00' in 2 rows", "'1e0' in 2 rows, '1' in 2"]),
        (("9007199254740993", "9007199254740992"), []),
        (("1", "2", "1a", "nano", "1_0", "10", "inf"), []),
    ],
)
def test_suspicious_labels_cause_a_warning(tmp_path, labels: tuple[str, ...], told: list[str]) -> None:
    path = write(tmp_path / "t.csv", [(str(i), labels[i % len(labels)]) for i in range(10)], ("a", "label"))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        data = table.load(path)
    assert set(data.class_names) == set(labels), "who means it is not kept from it"
    assert len(found) == len(told)
    for warning, words in zip(found, told, strict=True):
        assert warning.category is DataWarning
        assert str(warning.message).startswith(f"{path}: column 'label' has {words}")


def test_a_test_file(tmp_path) -> None:
    train, test = write(tmp_path / "train.csv"), write(tmp_path / "test.csv", ROWS[:3])
    data = table.load(train, test=test)
    assert repr(data) == "Dataset('train', features 3, 2 classes, 10 train + 3 test)"
    assert (data.test.inputs == data.train.inputs[:3]).all()
    write(test, [*ROWS[:3], ("1", "2", "3", "maybe")])
    with pytest.raises(DataError, match=r"test.csv: line 5: label 'maybe'"):
        table.load(train, test=test)


def test_the_training_table_is_no_test(tmp_path) -> None:
    train = write(tmp_path / "t.csv")
    with pytest.raises(DataError, match="is the training table itself"):
        table.load(train, test=tmp_path / "." / "t.csv")


def test_texts_among_the_features_are_told_apart(tmp_path) -> None:
    with pytest.raises(DataError, match=r"column 'said' must hold finite numbers.*--text-column"):
        table.load(write(tmp_path / "t.csv", [("good", "a"), ("bad", "b")], ("said", "label")))


def test_text_column(tmp_path) -> None:
    path = tmp_path / "reviews.csv"
    path.write_text('text,stars\n"good, really\ngood",2\nbad,1\n' + "fine,2\nworse,1\n" * 4)
    data = table.load(path, label="stars", text="text")
    assert data.kind == "text"
    assert data.class_names == ("1", "2")
    assert "good, really\ngood" in data.train.inputs + data.test.inputs


def test_texts_of_any_length(tmp_path) -> None:
    before = csv.field_size_limit()
    path = tmp_path / "t.csv"
    path.write_text("text,label\n" + f"{'long ' * 40_000},1\nshort,0\n" * 5)
    assert max(map(len, table.load(path, text="text").train.inputs)) == 200_000
    path.write_text('text,label\n"open,1\n')
    with pytest.raises(DataError, match="line 2"):
        table.load(path, text="text")
    assert csv.field_size_limit() == before


def test_line_numbers_count_lines_inside_quotes(tmp_path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('text,label\n"one\ntwo",a\n,b\n')
    with pytest.raises(DataError, match="line 4"):
        table.load(path, text="text")


def test_chosen_features_and_label(tmp_path) -> None:
    path = write(tmp_path / "t.csv", header=("id", "b", "c", "kind"))
    assert table.load(path, label="kind", features=["b"]).train.shape == (1,)


class Counting(str):
    """A name that counts how often it is compared with another."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counting.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_columns_are_found_without_a_look_at_all_others(tmp_path) -> None:
    count = 500  # genes may be 50,000
    header = (*(f"gene{i}" for i in range(count)), "label")
    write(tmp_path / "t.csv", [("1",) * count + (str(i % 2),) for i in range(10)], header)
    data = table.load(tmp_path / "t.csv", features=[Counting(name) for name in header[:-1]])
    assert data.train.shape == (count,)
    assert Counting.compared < 20 * count


def test_integer_labels_sort_as_numbers(tmp_path) -> None:
    rows = [("1", str(10 - i)) for i in range(11)] * 2
    assert table.load(write(tmp_path / "t.csv", rows, ("x", "label"))).class_names == tuple(map(str, range(11)))


@pytest.mark.parametrize("changes", [{"end": "\r\n"}, {"mark": "\ufeff"}, {"end": "\n\n"}])
def test_ways_to_write_the_same_file(tmp_path, changes) -> None:
    plain, other = write(tmp_path / "t.csv"), write(tmp_path / "u.csv", **changes)
    assert table.load(plain).hash == table.load(other).hash


def test_tabs(tmp_path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text(write(tmp_path / "t.csv").read_text().replace(",", "\t"))
    assert table.load(path).hash == table.load(tmp_path / "t.csv").hash


def test_missing_values_are_listed_with_their_lines(tmp_path) -> None:
    rows = [("" if i in (2, 5) else "1", "a" if i % 2 else "b") for i in range(8)]
    with pytest.raises(DataError, match=r"t.csv: column 'x' must hold finite numbers: line 4 \(''\), line 7 \(''\)"):
        table.load(write(tmp_path / "t.csv", rows, ("x", "label")))


def test_missing_column_suggests_the_nearest(tmp_path) -> None:
    with pytest.raises(DataError, match=r"no column 'lable' \(did you mean 'label'\?\)"):
        table.load(write(tmp_path / "t.csv"), label="lable")


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_another_separator_is_named(tmp_path, mark) -> None:
    file = tmp_path / "t.csv"
    for value in ("1", "1,5"):
        file.write_text(mark.join("ab") + f"{mark}label\n" + mark.join((value, "2", "x")) + "\n")
        with pytest.raises(DataError, match=r"fields seem to be separated by .*; expected commas"):
            table.load(file)


def test_columns_are_listed_so_that_they_can_be_told_apart(tmp_path) -> None:
    path = write(tmp_path / "t.csv", [("1", "2", "yes")], ("a (cm)", '"b, raw"', "y"))
    with pytest.raises(DataError, match=r"no column 'label'; there are 'a \(cm\)', 'b, raw', 'y'"):
        table.load(path)


@pytest.mark.parametrize(("scale", "told"), [(1e300, "too large"), (1e-200, "too close together")])
def test_values_that_cannot_be_standardised_are_refused(tmp_path, scale, told) -> None:
    rows = "".join(f"{i * scale},{i % 2}\n" for i in range(-10, 10))
    (tmp_path / "t.csv").write_text(f"x,label\n{rows}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError, match=f"t.csv: column 'x' has values {told} to standardise"):
            table.load(tmp_path / "t.csv")


def test_text_and_features_cannot_be_combined(tmp_path) -> None:
    with pytest.raises(ValueError, match="are both passed"):
        table.load(write(tmp_path / "t.csv"), text="a", features=["b"])


class TestParquet:
    @pytest.fixture
    def save(self, tmp_path):
        pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow (extra tables)")
        from pyarrow import parquet

        def write(**columns):
            parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
            return tmp_path / "t.parquet"

        return write

    def test_agrees_with_csv(self, tmp_path, save) -> None:
        a, b, _, label = zip(*ROWS, strict=True)
        path = save(a=list(map(int, a)), b=list(map(float, b)), c=[5] * 10, label=list(label))
        assert table.load(path).hash == table.load(write(tmp_path / "t.csv")).hash

    def test_dictionary_and_integer_labels(self, save) -> None:
        import pyarrow as pa

        text = pa.array([f"text {i}" for i in range(10)]).dictionary_encode()
        data = table.load(save(text=text, label=[0, 1] * 5), text="text")
        assert data.kind == "text"
        assert data.class_names == ("0", "1")

    def test_columns_of_other_types_may_stand_beside(self, save) -> None:
        data = table.load(save(x=[1.0, 2.0] * 5, label=[0, 1] * 5, path=[["a"], ["b"]] * 5), features=["x"])
        assert data.train.shape == (1,)

    @pytest.mark.parametrize(
        ("columns", "match"),
        [
            ({"x": [1.0, None] * 5, "label": [0, 1] * 5}, r"column 'x'.*row 2 \(None\)"),
            ({"x": [1.0, float("nan")] * 5, "label": [0, 1] * 5}, r"row 2 \(nan\)"),
            ({"x": [[1.0], [2.0]] * 5, "label": [0, 1] * 5}, r"column 'x' must hold finite numbers, not list"),
            ({"x": [1.0] * 10, "label": [0.5, 1.0] * 5}, "column 'label'"),
            ({"x": [1.0] * 10, "label": ["a", None] * 5}, r"row 2 \(None\)"),
            ({"x": [1.0] * 10}, "no column 'label'"),
            ({"x": [], "label": []}, "no rows"),
        ],
    )
    def test_bad_values_are_refused(self, save, columns, match) -> None:
        with pytest.raises(DataError, match=match):
            table.load(save(**columns))


@pytest.mark.parametrize("columns", [{"text": "label"}, {"features": ["a", "label"]}])
def test_the_label_is_not_a_feature(tmp_path, columns) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(columns))} includes the label column 'label'"):
        table.load(write(tmp_path / "t.csv"), **columns)
