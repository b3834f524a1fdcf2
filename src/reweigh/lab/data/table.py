"""Load a table: decide what each column is, and convert it to features; or one column of text.

read (source.columns) -> roles -> fit on training rows (`Column`, plain numbers and strings) -> encode
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reweigh.checks import nearest
from reweigh.errors import DataError, DataWarning
from reweigh.lab.data.dataset import NOISY_HOLDOUT, TEST, TEXT_WIDTH, Column, Dataset, Part
from reweigh.lab.data.source.columns import Table, read, require_columns, shown
from reweigh.lab.data.split import HOLDOUT, class_names_of, noisy_holdout
from reweigh.lab.data.vectors import hash_texts

Numbers = NDArray[np.float64]

BEFORE = "_before"
"""The end of the name of a column of old labels, which `reweigh correct` writes; it is not a feature."""
NUMBERS = 0.9
"""The fraction of numbers from which the other values of a column are mistakes."""
MOST_CATEGORIES = 50
RARE = 0.01
"""The fraction of rows below which a category, or a missing value, gets no feature of its own."""
MANY_ROWS = 100  # from which numbers that count rows are an index
WORDS = 3  # of a text, on average

MISSING = frozenset(("na", "n/a", "#n/a", "#na", "<na>", "nan", "-nan", "null", "none", "?"))
"""Spellings of a missing value in tables, in lower case."""

_INDEX_NAME = re.compile(r"Unnamed: \d+|index|(.*_)?(id|uuid|guid|idx)|.*[a-z](Id|ID)", re.IGNORECASE)
_FORMATS = ("iso", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_COMMA = re.compile(r"[+-]?\d+,\d+", re.ASCII)
_MAX_SHOWN = 5


def load(
    path: str | os.PathLike[str],
    label: str = "label",
    text: str | None = None,
    only: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    test: str | os.PathLike[str] | None = None,
    seed: int = 0,
    holdout: float = HOLDOUT,
) -> Dataset:
    """Load the rows of `path` as a data set of features or of texts.

    A column is a number, a date, a category or a text, see `roles`; columns that say nothing (constant, empty, a
    different value in every row) are set aside with a `DataWarning`. A number x becomes (x - mean) / std, a missing one
    0; see `encode`. Everything is fitted on the training part. Rows without a label are left out with a warning. The
    distinct labels, sorted (as numbers if all are integers), are the class names; those that are probably not meant as
    classes cause a warning (`label_doubts`). All that is wrong with a file is reported together.

    Args:
        path: `.csv`, `.tsv`, `.parquet` or `.xlsx`; see `reweigh.lab.data.source.columns.read`.
        label: the label column.
        text: the text column; all other columns are then ignored.
        only: the columns to use; by default all except the label, and the old labels of `reweigh correct`.
        drop: columns not to use.
        test: a second file with the same columns; without it a seeded fifth becomes the noisy hold-out.
        seed: the seed of that split.
        holdout: the fraction held out without a test file; 0 keeps all rows for training.
    """
    if text is not None and (only is not None or drop):
        raise ValueError("text and a choice of columns are both passed; omit one of them")
    for name, chosen in (("text", [text]), ("only", only or [])):
        if label in chosen:
            raise ValueError(f"{name} includes the label column {label!r}, which the net is to predict; remove it")
    if test is not None and Path(path).exists() and Path(test).exists() and Path(test).samefile(path):
        raise DataError(f"{test}: is the training table itself; pass other test rows, or none to hold out a fifth")
    tables = [read(Path(file)) for file in (path, test) if file is not None]
    first, columns = tables[0], only or ()
    if label == "label" and label not in first.names:
        there = f"there are {shown(first.names)}"
        raise DataError(f"{first.path}: no column 'label'; name the label column by --label-column: {there}")
    require_columns(first, label, *([text] if text is not None else columns), *drop)
    names = [name for name in columns or first.names if name not in (label, label + BEFORE) and name not in drop]
    for table in tables[1:]:
        require_columns(table, label, *([text] if text is not None else names))
    if not names:
        raise DataError(f"{first.path}: no column except the label {label!r}")

    given = [_labels_of(table, label) for table in tables]
    kept_rows = [np.array([i for i, value in enumerate(values) if value], np.int64) for values in given]
    class_names = class_names_of(value for value in given[0] if value)
    number = {name: k for k, name in enumerate(class_names)}
    problems = _label_problems(tables, given, label, class_names)
    found = None if text is not None else roles(first, names, keep_keys=only is not None)
    problems += [] if found is None else found.problems
    if problems:
        raise DataError(f"{first.path}: " + "\n  ".join(problems))
    notes = [] if found is None else found.notes
    _warn(first.path, label, given, notes)

    texts = None if text is None else [table.strings(text) for table in tables]
    labels = [
        np.array([number[values[i]] for i in rows], np.int64) for values, rows in zip(given, kept_rows, strict=True)
    ]
    if test is None:
        train, held = noisy_holdout(str(path), labels[0], seed, holdout)
    else:
        train, held = np.arange(len(labels[0])), np.arange(0)
    rows = kept_rows[0][train]
    fitted: tuple[Column, ...] | None = None
    inputs: list[Any]
    if texts is not None:
        inputs = [tuple(values[i] for i in chosen) for values, chosen in zip(texts, kept_rows, strict=True)]
    elif found is not None:
        fitted = tuple(_fit(first, role, rows) for role in found.roles)
        if not any(column.width for column in fitted):
            raise DataError(f"{first.path}: no column to learn from: {'; '.join(notes) or 'all categories are rare'}")
        inputs = [encode(table, fitted)[chosen] for table, chosen in zip(tables, kept_rows, strict=True)]
    parts = [Part(x, y) for x, y in zip(inputs, labels, strict=True)]
    tested = parts[0].take(held) if test is None else parts[1]
    kind = NOISY_HOLDOUT if test is None else TEST
    return Dataset(first.path.stem, parts[0].take(train), tested, class_names, holdout=kind, columns=fitted, rows=rows)


class Role(NamedTuple):
    """What a column is: a `Column` without its scaling and categories, and its parsed values (None if missing)."""

    column: Column
    values: list[Any]


class Roles(NamedTuple):
    """The columns to use, notes on those set aside, and problems."""

    roles: list[Role]
    notes: list[str]
    problems: list[str]


def roles(table: Table, names: Iterable[str], keep_keys: bool = False) -> Roles:
    """Decide what each column is by its values.

    | values | kind |
    |---|---|
    | none, or the same in all rows | set aside |
    | numbers | number; set aside if they are all different and their name is that of a key, or they count rows |
    | at least 90 % numbers | a problem |
    | dates, all in one format | date |
    | strings, nearly all different | text if they have three words or more on average, else set aside |
    | strings, at most 20, or each in 20 rows on average | category |
    | other strings | text if they have three words or more on average, else category |

    Args:
        table: the table.
        names: its columns to look at.
        keep_keys: do not set numbers aside because they look like a key.
    """
    found = Roles([], [], [])
    for name in names:
        try:
            values = [None if _is_missing(value) else value for value in table.values(name)]
        except DataError as error:  # a list, say
            found.notes.append(f"{name} ({str(error).rpartition(', not ')[2]})")
            continue
        present = [value for value in values if value is not None]
        distinct = len(set(map(str, present)))
        numbers = [_as_number(value, table) for value in values]
        parsed = sum(value is not None for value in numbers)
        if distinct < 2:
            found.notes.append(f"{name} ({'always ' + repr(str(present[0]))[:40] if present else 'empty'})")
        elif parsed == len(present):
            if not keep_keys and distinct == len(values) and _is_key(name, numbers):
                found.notes.append(f"{name} (a different number in every row, like a key)")
            else:
                found.roles.append(Role(Column(name), numbers))
        elif parsed >= NUMBERS * len(present):
            wrong = [i for i, value in enumerate(values) if value is not None and numbers[i] is None]
            places = ", ".join(f"{table.place(i)} ({str(values[i])!r:.40})" for i in wrong[:_MAX_SHOWN])
            more = f" and {len(wrong) - _MAX_SHOWN} more" if len(wrong) > _MAX_SHOWN else ""
            found.problems.append(
                f"column {name!r} must hold finite numbers: {places}{more}; or drop it (--drop-columns)"
            )
        elif (form := _date_form(present)) is not None:
            days = [None if value is None else _as_days(value, form) for value in values]
            found.roles.append(Role(Column(name, kind="date", form=form), days))
        else:
            _add_strings(found, name, values, distinct)
    return found


def _add_strings(found: Roles, name: str, values: list[Any], distinct: int) -> None:
    strings = [None if value is None else str(value).strip() for value in values]
    present = [value for value in strings if value is not None]
    is_text = sum(len(value.split()) for value in present) >= WORDS * len(present)
    nearly_all = len(present) >= 20 and distinct > 0.9 * len(present)
    if is_text and (nearly_all or distinct > max(20, len(present) // 20)):
        found.roles.append(Role(Column(name, kind="text"), strings))
    elif nearly_all:
        found.notes.append(f"{name} (a different value in nearly every row)")
    else:
        found.roles.append(Role(Column(name, kind="category"), strings))


def _fit(table: Table, role: Role, rows: NDArray[np.int64]) -> Column:
    """Return the column with its statistics over the training rows."""
    column, values = role.column, [role.values[i] for i in rows.tolist()]
    present = [value for value in values if value is not None]
    absent = len(values) - len(present)
    flags = RARE * len(values) <= absent < len(values) and absent > 0
    if column.kind == "text":
        return column
    if column.kind == "category":
        least = max(2, RARE * len(values)) if len(values) >= 20 else 1
        frequent = [name for name, count in Counter(present).most_common(MOST_CATEGORIES) if count >= least]
        return column._replace(categories=tuple(sorted(frequent)), flags_missing=flags)
    x = np.array(present, np.float64)
    if not len(x):
        return column
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mean, std = x.mean(), x.std()
        if x.min() == x.max():  # rounding may leave std > 0
            std = np.float64(1)
        good = np.isfinite(((x - mean) / std).astype(np.float32)).all() and np.isfinite(std)
    if not good:
        how = "too close together" if std == 0 else "too large"
        raise DataError(f"{table.path}: column {column.name!r} has values {how} to standardise")
    return column._replace(mean=float(mean), std=float(std), flags_missing=flags)


def encode(table: Table, columns: Sequence[Column]) -> NDArray[np.float32]:
    """Return the features (N, F) of the rows of a table, as those of the training were computed.

    A number or date has its standardised value, 0 if it is missing; a date also sine and cosine of the day of the year
    and of the week. A category has a 1 in the place of its value; all zeros mean missing, rare or new. A text has its
    hashed words (`reweigh.lab.data.vectors.hash_texts`). A last feature may flag missing values.

    Raises:
        DataError: columns are missing, or values are no numbers or dates; all are named.
    """
    require_columns(table, *(column.name for column in columns))
    problems: list[str] = []
    blocks = [_encoded(table, column, problems) for column in columns]
    if problems:
        raise DataError(f"{table.path}: " + "\n  ".join(problems))
    features = np.concatenate(blocks, axis=1)
    with np.errstate(over="ignore"):  # too large values become infinite, for which `Part` raises DataError
        return features.astype(np.float32)


def _encoded(table: Table, column: Column, problems: list[str]) -> Numbers:
    values = [None if _is_missing(value) else value for value in table.values(column.name)]
    out = np.zeros((len(values), column.width))
    if column.flags_missing:
        out[:, -1] = [value is None for value in values]
    if column.kind == "category":
        place = {name: k for k, name in enumerate(column.categories)}
        for i, value in enumerate(values):
            k = None if value is None else place.get(str(value).strip())
            if k is not None:
                out[i, k] = 1
    elif column.kind == "text":
        out[:, :TEXT_WIDTH] = hash_texts(["" if value is None else str(value) for value in values], TEXT_WIDTH)
    else:
        read_value: Callable[[Any], float | None] = (
            (lambda value: _as_number(value, table))
            if column.kind == "number"
            else (lambda v: _as_days(v, column.form))
        )
        x = [None if value is None else read_value(value) for value in values]
        wrong = [i for i, value in enumerate(values) if value is not None and x[i] is None]
        if wrong:
            places = ", ".join(f"{table.place(i)} ({str(values[i])!r:.40})" for i in wrong[:_MAX_SHOWN])
            what = "finite numbers" if column.kind == "number" else f"dates as in the training ({column.form})"
            problems.append(f"column {column.name!r} must hold {what}: {places}")
            return out
        known = np.array([value is not None for value in x])
        numbers = np.array([0.0 if value is None else value for value in x])
        out[:, 0] = np.where(known, (numbers - column.mean) / column.std, 0.0)
        if column.kind == "date":
            for k, period in enumerate((365.2425, 7.0)):
                out[:, 1 + 2 * k] = np.where(known, np.sin(2 * np.pi * numbers / period), 0.0)
                out[:, 2 + 2 * k] = np.where(known, np.cos(2 * np.pi * numbers / period), 0.0)
    return out


def standardise(values: Numbers, columns: Sequence[Column]) -> NDArray[np.float32]:
    """Standardise rows of numbers in float64, and return them in float32; every column must be a plain number.

    >>> standardise(np.array([[1700000001.0]]), [Column("time", 1.7e9, 2.0)])
    array([[0.5]], dtype=float32)
    """
    mean, std = np.array([c.mean for c in columns]), np.array([c.std for c in columns])
    with np.errstate(over="ignore"):  # too large values become infinite, for which `Part` raises DataError
        scaled: NDArray[np.float32] = ((values - mean) / std).astype(np.float32)
    return scaled


def are_numbers(columns: Sequence[Column]) -> bool:
    """Return whether every column is a number with one feature, so that `standardise` applies."""
    return all(column.kind == "number" and column.width == 1 for column in columns)


def value_of(column: Column, features: Sequence[float]) -> float | str:
    """Return the value that the features of one column stand for, rounded for people.

    >>> value_of(Column("colour", kind="category", categories=("blue", "red")), [0.0, 1.0])
    'red'
    """
    if column.flags_missing and features[-1]:
        return "missing"
    if column.kind == "category":
        return column.categories[int(np.argmax(features))] if max(features[: len(column.categories)]) else "other"
    if column.kind == "text":
        return "text"
    number = features[0] * column.std + column.mean
    if column.kind == "date":
        return datetime.fromtimestamp(86400 * round(number), tz=timezone.utc).date().isoformat()
    return float(f"{number:.6g}") if abs(number) > 1e-6 * column.std else 0.0  # rounded from float32


def _is_missing(value: Any) -> bool:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return isinstance(value, str) and (not value.strip() or value.strip().lower() in MISSING)


def _as_number(value: Any, table: Table) -> float | None:
    """Return a finite number, or None; 1,5 is a number in a table whose separator is no comma."""
    if isinstance(value, (date, datetime)):
        return None
    try:
        if isinstance(value, str):
            if "_" in value:  # 1_000, which only Python reads as a number
                return None
            if table.decimal_comma and _COMMA.fullmatch(value.strip()):
                value = value.replace(",", ".")
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _is_key(name: str, numbers: Sequence[float | None]) -> bool:
    """Return whether numbers, all different, look like a key: by their name, or because they count rows."""
    x = np.array(numbers, np.float64)
    if not (x == np.round(x)).all():
        return False
    return _INDEX_NAME.fullmatch(name) is not None or (len(x) >= MANY_ROWS and bool((np.diff(x) == 1).all()))


def _date_form(values: Sequence[Any]) -> str | None:
    """Return the format that all values have, or None; of two, the day is before the month."""
    for form in _FORMATS:
        if all(_as_days(value, form) is not None for value in values[:20]) and all(
            _as_days(value, form) is not None for value in values[20:]
        ):
            return form
    return None


def _as_days(value: Any, form: str) -> float | None:
    """Return the days since 1970 of a date or time, or None.

    >>> _as_days("1970-01-02 12:00", "iso"), _as_days("2.1.1970", "%d.%m.%Y"), _as_days("soon", "iso")
    (1.5, 1.0, None)
    """
    try:
        if isinstance(value, str):
            text = value.strip()
            if form != "iso":
                value = datetime.strptime(text, form)
            elif text[:4].isdecimal() and text[4:5] == "-":
                value = datetime.fromisoformat(text.removesuffix("Z"))
        if isinstance(value, datetime):
            aware = value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
            return aware.timestamp() / 86400
        if isinstance(value, date):
            return float((value - date(1970, 1, 1)).days)
    except (ValueError, OverflowError):
        pass
    return None


def _labels_of(table: Table, label: str) -> list[str]:
    """Return the labels as strings, empty where there is none."""
    return [value.strip() for value in table.texts(label)]


def _label_problems(
    tables: Sequence[Table], given: Sequence[list[str]], label: str, class_names: Sequence[str]
) -> list[str]:
    if len(class_names) < 2:
        held = f"holds only {class_names[0]!r:.60}" if class_names else "is empty"
        return [f"column {label!r} {held}; expected two classes or more"]
    problems = []
    for table, values in zip(tables[1:], given[1:], strict=True):
        known = set(class_names)
        unknown = [
            f"{table.place(i)}: label {value!r:.60}" for i, value in enumerate(values) if value and value not in known
        ]
        if unknown:
            close = nearest(values[0], class_names) if len(unknown) == len(values) else ""
            more = f" and {len(unknown) - _MAX_SHOWN} more" if len(unknown) > _MAX_SHOWN else ""
            problems.append(f"{table.path}: {', '.join(unknown[:_MAX_SHOWN])}{more} is not a training class{close}")
    return problems


def _warn(path: Path, label: str, given: Sequence[list[str]], notes: list[str]) -> None:
    """Warn of labels that are probably not meant, rows without a label, and columns set aside."""
    for doubt in label_doubts([value for value in given[0] if value]):
        warnings.warn(f"{path}: column {label!r} has {doubt}", DataWarning, stacklevel=3)
    without = sum(not value for values in given for value in values)
    if without:
        rows = f"{without:,} row{'s' if without > 1 else ''} without a label left out"
        warnings.warn(f"{path}: {rows}; reweigh predict predicts them", DataWarning, stacklevel=3)
    if notes:
        more = f" and {len(notes) - 2 * _MAX_SHOWN} more" if len(notes) > 2 * _MAX_SHOWN else ""
        shown = ", ".join(notes[: 2 * _MAX_SHOWN])
        warnings.warn(f"{path}: columns not used: {shown}{more}", DataWarning, stacklevel=3)


def label_doubts(labels: Sequence[str]) -> list[str]:
    """Return a sentence for every suspicious label: spellings of a missing value, and one number spelt in two ways.

    >>> for doubt in label_doubts(["1", "1", "1.0", "2", "NA"]):
    ...     print(doubt)
    'NA' in 1 row, a common spelling of a missing value: kept as a class; remove these rows if they have no label
    '1' in 2 rows, '1.0' in 1 row, the same number: kept as different classes; spell it in one way if they are one class
    """
    counts = Counter(labels)
    doubts = []
    if missing := [label for label in counts if label.lower() in MISSING]:
        doubts.append(
            f"{_counted(missing, counts)}, a common spelling of a missing value: kept as a class; remove these rows if "
            "they have no label"
        )
    numbers: dict[Decimal, list[str]] = {}
    for label in counts:
        if _NUMBER.fullmatch(label):
            numbers.setdefault(Decimal(label), []).append(label)
    for same in [same for same in numbers.values() if len(same) > 1][:_MAX_SHOWN]:
        doubts.append(
            f"{_counted(same, counts)}, the same number: kept as different classes; spell it in one way if they are "
            "one class"
        )
    return doubts


def _counted(labels: Sequence[str], counts: Counter[str]) -> str:
    return ", ".join(f"{label!r:.60} in {counts[label]:,} row{'s' if counts[label] > 1 else ''}" for label in labels)
