"""Identical examples with different labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reweigh.lab.data.dataset import Part
from reweigh.lab.data.source.images import Files
from reweigh.lab.run import execute
from reweigh.lab.run.defaults import default_run
from reweigh.lab.suspects import suspects_of
from reweigh.lab.suspects.duplicates import contradictions, list_first
from reweigh.labels import find_suspects


def test_pictures_texts_and_files_are_compared(tmp_path: Path) -> None:
    pixels = np.arange(6 * 12, dtype=np.uint8).reshape(6, 2, 2, 3)
    pixels[3], pixels[5] = pixels[0], pixels[1]
    labels = np.array([0, 1, 0, 1, 1, 1])
    assert [rows.tolist() for rows in contradictions(Part(pixels, labels))] == [[0, 3]]
    texts = ("", "a film", "", "a film!", "A  Film", "x")
    assert [rows.tolist() for rows in contradictions(Part(texts, np.array([0, 1, 1, 0, 0, 1])))] == [[1, 4]]
    for name, content in (("a.png", b"1"), ("b.png", b"1"), ("c.png", b"2")):
        (tmp_path / name).write_bytes(content)
    files = Files(tmp_path, ("a.png", "b.png", "c.png", "gone.png"))
    assert [rows.tolist() for rows in contradictions(Part(files, np.array([0, 1, 1, 0])))] == [[0, 1]]


def test_the_rarer_label_of_a_group_is_listed_first() -> None:
    labels = np.array([0, 0, 1, 1, 0])
    suspects = find_suspects(labels, np.tile([0.5, 0.5], (5, 1)), bootstrap=1)
    found = list_first(suspects, [np.array([0, 1, 2]), np.array([3, 4])])
    assert found.issue.tolist() == [False, False, True, True, True]
    assert found.ranked()[:3].tolist() == [2, 3, 4]
    assert (found.suggested[2], found.p_suggested[2]) == (0, 1.0)
    assert list_first(suspects, []) is suspects


def test_a_table_of_texts_lists_them(tmp_path: Path) -> None:
    lines = [f"{'good' if k % 2 else 'bad'} film {k},{k % 2}" for k in range(40)]
    lines += ["the same words,0", "The same  words,1", "the same words,0"]
    (tmp_path / "mine.csv").write_text("\n".join(["text,label", *lines]))
    fields = {"text_column": "text", "iterations": 20, "device": "cpu"}
    result = suspects_of(execute(default_run(str(tmp_path / "mine.csv"), fields), tmp_path / "runs"), bootstrap=2)
    assert [rows.tolist() for rows in result.duplicates] == [[40, 41, 42]]
    assert result.suspects.ranked()[0] == 41
    assert result.suspects.score[41] == pytest.approx(1.0)
