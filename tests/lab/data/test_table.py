from __future__ import annotations

import csv
import warnings

import numpy as np
import pytest

from reweigh.errors import DataError, DataWarning
from reweigh.lab.data import table

ROWS = [(f"{i}", f"{100 + 2 * i}", f"{i % 4}", "yes" if i % 3 else "no") for i in range(10)]


def write(path, rows=ROWS, header=("a", "b", "c", "label"), end="\n", mark=""):
    path.write_bytes((mark + end.join(",".join(row) for row in [header, *rows]) + end).encode())
    return path


def test_features_are_standardised_by_the_training_part(tmp_path) -> None:
    data = table.load(write(tmp_path / "t.csv"))
    assert repr(data) == "Dataset('t', features 3, 2 classes, 8 train + 2 noisy hold-out)"
    assert data.class_names == ("no", "yes")
    assert data.train.inputs.mean(axis=0) == pytest.approx([0, 0, 0], abs=1e-6)
    assert data.train.inputs.std(axis=0) == pytest.approx([1, 1, 1], abs=1e-6)


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
    assert table.load(path, label="kind", only=["b"]).train.shape == (1,)


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
    write(tmp_path / "t.csv", [(str(i),) * count + (str(i % 2),) for i in range(10)], header)
    data = table.load(tmp_path / "t.csv", only=[Counting(name) for name in header[:-1]])
    assert data.train.shape == (count,)
    assert Counting.compared < 20 * count


def test_integer_labels_sort_as_numbers(tmp_path) -> None:
    rows = [(str(i % 3), str(10 - i)) for i in range(11)] * 2
    assert table.load(write(tmp_path / "t.csv", rows, ("x", "label"))).class_names == tuple(map(str, range(11)))


@pytest.mark.parametrize("changes", [{"end": "\r\n"}, {"mark": "\ufeff"}, {"end": "\n\n"}])
def test_ways_to_write_the_same_file(tmp_path, changes) -> None:
    plain, other = write(tmp_path / "t.csv"), write(tmp_path / "u.csv", **changes)
    assert table.load(plain).hash == table.load(other).hash


def test_tabs(tmp_path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text(write(tmp_path / "t.csv").read_text().replace(",", "\t"))
    assert table.load(path).hash == table.load(tmp_path / "t.csv").hash


def test_missing_column_suggests_the_nearest(tmp_path) -> None:
    with pytest.raises(DataError, match=r"no column 'lable' \(did you mean 'label'\?\)"):
        table.load(write(tmp_path / "t.csv"), label="lable")


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_another_separator_is_recognised(tmp_path, mark) -> None:
    file = tmp_path / "t.csv"
    file.write_text(write(tmp_path / "plain.csv").read_text().replace(",", mark))
    assert table.load(file).hash == table.load(tmp_path / "plain.csv").hash
    file.write_text('"a, b";label\n' + "1,5;x\n0,5;y\n" * 5)
    assert [(column.name, column.mean) for column in table.load(file).columns] == [("a, b", 1.0)]


def test_columns_are_listed_so_that_they_can_be_told_apart(tmp_path) -> None:
    path = write(tmp_path / "t.csv", [("1", "2", "yes")], ("a (cm)", '"b, raw"', "y"))
    with pytest.raises(DataError, match=r"no column 'label'; .*there are 'a \(cm\)', 'b, raw', 'y'"):
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
        table.load(write(tmp_path / "t.csv"), text="a", only=["b"])


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
        path = save(a=list(map(int, a)), b=list(map(float, b)), c=[i % 4 for i in range(10)], label=list(label))
        assert table.load(path).hash == table.load(write(tmp_path / "t.csv")).hash

    def test_dictionary_and_integer_labels(self, save) -> None:
        import pyarrow as pa

        text = pa.array([f"text {i}" for i in range(10)]).dictionary_encode()
        data = table.load(save(text=text, label=[0, 1] * 5), text="text")
        assert data.kind == "text"
        assert data.class_names == ("0", "1")

    def test_columns_of_other_types_may_stand_beside(self, save) -> None:
        data = table.load(save(x=[1.0, 2.0] * 5, label=[0, 1] * 5, path=[["a"], ["b"]] * 5), only=["x"])
        assert data.train.shape == (1,)

    @pytest.mark.parametrize(
        ("columns", "match"),
        [
            ({"x": ["a"] + ["1", "2"] * 20, "label": [0] + [0, 1] * 20}, r"'x' must.*row 1 \('a'\)"),
            ({"x": [1.0] * 10, "label": [0.5, 1.0] * 5}, "column 'label'"),
            ({"x": [1.0] * 10, "label": ["a", None] * 5}, "holds only 'a'"),
            ({"x": [1.0] * 10}, "no column 'label'"),
            ({"x": [], "label": []}, "no rows"),
        ],
    )
    def test_bad_values_are_refused(self, save, columns, match) -> None:
        with pytest.raises(DataError, match=match):
            table.load(save(**columns))


@pytest.mark.parametrize("columns", [{"text": "label"}, {"only": ["a", "label"]}])
def test_the_label_is_not_a_feature(tmp_path, columns) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(columns))} includes the label column 'label'"):
        table.load(write(tmp_path / "t.csv"), **columns)


COLOURS = ("red", "green", "blue", "")
NOTES = "the delivery was late", "everything as it should be", "never again with this company", "fast and friendly"


def mixed(path, rows=200):
    """Write a table with a column of every kind, and return its path."""
    lines = [";passenger_id;age;fee;colour;member;born;note;country;nothing;label"]
    for i in range(rows):
        age = "" if i % 10 == 3 else str(20 + i % 50)
        born = f"{1 + i % 28}.{1 + i % 12}.19{50 + i % 50}"
        note = f"{NOTES[i % 4]} {i}"
        kind = "" if i % 50 == 7 else "AB"[i % 2]
        row = (i, 7000 + 3 * i, age, f"{i % 7},5", COLOURS[i % 4], ("yes", "no")[i % 2], born, note, "Chile", "", kind)
        lines.append(";".join(map(str, row)))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_every_kind_of_column(tmp_path) -> None:
    with pytest.warns(DataWarning) as warned:
        data = table.load(mixed(tmp_path / "m.csv"))
    told = [str(warning.message).removeprefix(f"{tmp_path / 'm.csv'}: ") for warning in warned]
    assert told == [
        "4 rows without a label left out; reweigh predict predicts them",
        "columns not used: Unnamed: 0 (a different number in every row, like a key), "
        "passenger_id (a different number in every row, like a key), country (always 'Chile'), nothing (empty)",
    ]
    assert data.columns is not None
    assert {column.name: (column.kind, column.width) for column in data.columns} == {
        "age": ("number", 2),
        "fee": ("number", 1),
        "colour": ("category", 4),
        "member": ("category", 2),
        "born": ("date", 5),
        "note": ("text", 512),
    }
    assert len(data.train) + len(data.test) == 196
    assert data.train.shape == (2 + 1 + 4 + 2 + 5 + 512,)
    assert data.rows is not None
    assert all("AB"[i % 2] == data.class_names[k] for i, k in zip(data.rows, data.train.labels, strict=True))


def test_features_are_those_of_scikit_learn(tmp_path) -> None:
    """Standardised numbers with their mean for missing values and a flag, and categories in one column each."""
    from sklearn.impute import MissingIndicator
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    with pytest.warns(DataWarning):
        data = table.load(mixed(tmp_path / "m.csv"), only=["age", "colour"])
    with (tmp_path / "m.csv").open() as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    chosen = [rows[i] for i in data.rows]
    age = np.array([[float(row["age"] or "nan")] for row in chosen])
    colour = np.array([[row["colour"] or "missing"] for row in chosen], dtype=object)
    numbers = np.nan_to_num(StandardScaler().fit_transform(age))
    names = OneHotEncoder(sparse_output=False).fit_transform(colour)
    assert [column.categories for column in data.columns] == [(), ("blue", "green", "red")]
    order = [0, 1, 3, 2]  # missing comes last here
    expected = np.concatenate([numbers, MissingIndicator().fit_transform(age), names[:, order]], axis=1)
    np.testing.assert_allclose(data.train.inputs, expected, atol=1e-6)


def test_columns_are_chosen_and_dropped(tmp_path) -> None:
    path = mixed(tmp_path / "m.csv")
    with pytest.warns(DataWarning, match="without a label"):
        kept = table.load(path, only=["passenger_id", "fee"])
    with pytest.warns(DataWarning, match="without a label"):
        dropped = table.load(path, drop=["nothing", "country", "passenger_id", "note", "Unnamed: 0"])
    assert [column.name for column in kept.columns or ()] == ["passenger_id", "fee"]  # a key, if it is chosen
    assert [column.name for column in dropped.columns or ()] == ["age", "fee", "colour", "member", "born"]
    with pytest.raises(DataError, match=r"no column 'nte' \(did you mean 'note'\?\)"):
        table.load(path, drop=["nte"])


def test_all_problems_are_in_one_message(tmp_path) -> None:
    rows = [(str(i), str(i), "ab"[i % 2]) for i in range(30)]
    rows[3], rows[5] = ("3", "x", "a"), ("five", "5", "b")
    path = write(tmp_path / "t.csv", rows, ("p", "q", "label"))
    test = write(tmp_path / "u.csv", [("1", "2", "c"), ("1", "2", "a")], ("p", "q", "label"))
    with pytest.raises(DataError) as caught:
        table.load(path, test=test)
    for problem in ("'p' must hold finite numbers: line 7 ('five')", "'q' must hold finite numbers: line 5 ('x')"):
        assert problem in str(caught.value)
    assert "u.csv: line 2: label 'c'" in str(caught.value)
    path.write_text("a,label\n1,x\n1,2,x\n3,y\n4\n")
    with pytest.raises(DataError, match=r"not line 3 \(3 fields\), line 5 \(1 fields\)"):
        table.load(path)


def test_a_table_with_nothing_to_learn_from(tmp_path) -> None:
    path = write(tmp_path / "t.csv", [(f"name{i}", "7", "ab"[i % 2]) for i in range(30)], ("name", "x", "label"))
    with (
        pytest.warns(DataWarning),
        pytest.raises(DataError, match=r"no column to learn from: name \(a different value"),
    ):
        table.load(path)


@pytest.mark.parametrize(
    ("dates", "form"),
    [
        (["2024-01-05", "2023-12-31"], "iso"),
        (["2024-01-05T12:30:00", "2023-12-31 01:02:03"], "iso"),
        (["31.12.2023", "5.1.2024"], "%d.%m.%Y"),
        (["31/12/2023", "05/01/2024"], "%d/%m/%Y"),
        (["12/31/2023", "01/05/2024"], "%m/%d/%Y"),
    ],
)
def test_formats_of_dates(tmp_path, dates, form) -> None:
    rows = [(dates[i % 2], "ab"[i % 2]) for i in range(10)]
    (column,) = table.load(write(tmp_path / "t.csv", rows, ("day", "label"))).columns
    assert (column.kind, column.form) == ("date", form)
    assert 19_720 < column.mean < 19_730


def test_latin_1_is_read_with_a_warning(tmp_path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(("town,label\n" + "Malmö,a\nKöln,b\n" * 5).encode("latin-1"))
    with pytest.warns(DataWarning, match=r"line 2 is not UTF-8; the file is read as Latin-1"):
        (column,) = table.load(path).columns
    assert column.categories == ("Köln", "Malmö")
    path.write_bytes(("town,label\n" + "Malmö,a\nKöln,b\n" * 5).encode("utf-16"))
    assert table.load(path).columns == (column,)


def test_typed_tables_agree_with_csv(tmp_path) -> None:
    import datetime

    pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow (extra tables)")
    excel = pytest.importorskip("openpyxl", reason="Excel needs openpyxl (extra tables)")
    from pyarrow import parquet

    days = [datetime.date(2024, 1, 1 + i % 20) for i in range(40)]
    columns = {
        "x": [None if i % 9 == 0 else i / 4 for i in range(40)],
        "day": days,
        "flag": [i % 3 == 0 for i in range(40)],
        "town": ["Rome" if i % 2 else "Oslo" for i in range(40)],
        "label": [None if i == 5 else i % 2 for i in range(40)],
    }
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    book = excel.Workbook()
    rows = list(zip(*columns.values(), strict=True))
    for row in (tuple(columns), *rows):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    plain = [["" if cell is None else int(cell) if isinstance(cell, bool) else cell for cell in row] for row in rows]
    write(tmp_path / "t.csv", [tuple(map(str, row)) for row in plain], tuple(columns))
    with pytest.warns(DataWarning, match="1 row without a label left out"):
        loaded = [table.load(tmp_path / f"t.{suffix}") for suffix in ("csv", "parquet", "xlsx")]
    assert len({data.hash for data in loaded}) == 1


def test_a_damaged_excel_file(tmp_path) -> None:
    pytest.importorskip("openpyxl", reason="Excel needs openpyxl (extra tables)")
    (tmp_path / "t.xlsx").write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"t\.xlsx: not a readable Excel file"):
        table.load(tmp_path / "t.xlsx")
