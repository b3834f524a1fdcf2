"""Cells of every CSV that people open: no spreadsheet runs them, and reading returns the text."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.lab.cli.predict import as_csv
from reweigh.lab.csv_text import csv_text, neutral, original
from reweigh.lab.predict import Predictions
from reweigh.lab.suspects.correction import Change, log_csv
from reweigh.lab.suspects.decisions import Decision, decisions_to_csv
from reweigh.lab.suspects.table import suspects_to_csv
from reweigh.labels import Suspects

RUN = "=+-@\t\r"
HOSTILE = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(1)", "\t=1", "\r=1", "'=1"]
TEXTS = st.one_of(st.text(), st.builds("{}{}".format, st.text(f"{RUN}'", min_size=1), st.text()))


@given(TEXTS)
def test_reading_returns_the_text(text: str) -> None:
    assert original(neutral(text)) == text
    assert neutral(text)[:1] not in tuple(RUN) or neutral(text) == text != ""


@pytest.mark.parametrize("text", ["-1", "+3", "-0.25", "1e-05", "-1e-05", "cat", "'tis", "", "1,5"])
def test_numbers_and_words_are_unchanged(text: str) -> None:
    assert neutral(text) == original(text) == text


def suspects() -> Suspects:
    n = len(HOSTILE)
    half = np.full(n, 0.5)
    classes = np.arange(n)
    return Suspects(
        classes, classes, classes[::-1], half, half > 1, half, half, tuple(HOSTILE), tuple(HOSTILE), HOSTILE[0], None
    )


WRITTEN = {
    "any": csv_text(HOSTILE, [HOSTILE, range(len(HOSTILE))]),
    "suspects": suspects_to_csv(suspects()),
    "decisions": decisions_to_csv([Decision(i, i, "keep", i) for i in range(len(HOSTILE))], HOSTILE),
    "changes": log_csv([Change(i, i, None, "=why") for i in range(len(HOSTILE))], HOSTILE, HOSTILE),
    "predictions": as_csv(
        Predictions(tuple(HOSTILE), np.arange(len(HOSTILE)), np.eye(len(HOSTILE)), tuple(HOSTILE)), True
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_no_written_cell_begins_as_a_formula(name: str) -> None:
    rows = list(csv.reader(io.StringIO(WRITTEN[name], newline="")))
    assert sum(len(row) for row in rows) > 2 * len(HOSTILE)
    assert not [cell for row in rows for cell in row if cell[:1] and cell[0] in RUN]
