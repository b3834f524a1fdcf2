"""Corrected labels, their folder, and runs on them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.lab.procedures import read_journal
from reweigh.lab.record import read_header
from reweigh.lab.record.files import replace_file
from reweigh.lab.run import execute
from reweigh.lab.run.material import gather
from reweigh.lab.spec import Run
from reweigh.lab.suspects.correction import Corrected, Correction, apply_decisions, retrain, write_correction
from reweigh.lab.suspects.decisions import Decision

DIGITS = Run(
    data="digits", net="mlp-16", weighting="CCE", noise="symmetric", rate=0.4, iterations=40, evaluate_every=20,
    device="cpu",
)  # fmt: skip


@given(st.lists(st.integers(0, 3), min_size=2, max_size=30), st.data())
def test_every_change_is_in_the_log_and_nothing_else_changes(labels: list[int], data: st.DataObject) -> None:
    before = np.array(labels)
    before.flags.writeable = False
    decisions = [
        Decision(i, labels[i], kind, data.draw(st.integers(0, 3)) if kind == "fix" else labels[i])
        for i in data.draw(st.sets(st.integers(1, len(labels) - 1)))
        for kind in [data.draw(st.sampled_from(["keep", "fix", "drop"]))]
    ]
    corrected = apply_decisions(before, decisions)
    again = before.copy()
    for change in corrected.changes:
        assert before[change.index] == change.before != change.after
        if change.after is not None:
            again[change.index] = change.after
    np.testing.assert_array_equal(corrected.labels, again)
    assert {c.index for c in corrected.changes if c.after is None} == set(np.flatnonzero(~corrected.keep).tolist())
    assert [c.index for c in corrected.changes] == sorted(c.index for c in corrected.changes)
    assert apply_decisions(before, []).changes == ()


@pytest.mark.parametrize(
    ("decisions", "message"),
    [
        ([Decision(3, 0, "keep", 0)], "index 3 is out of range for 3 labels"),
        ([Decision(0, 1, "keep", 1)], "example 0 has the label 0, not 1"),
        ([Decision(0, 0, "keep", 0), Decision(0, 0, "drop", 0)], "index 0 occurs twice"),
        ([Decision(i, 0, "drop", 0) for i in range(3)], "all 3 examples are dropped"),
    ],
)
def test_decisions_about_other_labels_are_refused(decisions: list[Decision], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        apply_decisions(np.zeros(3, np.int64), decisions)


def fix_and_drop(run: Run, fixes: int, drops: int) -> Corrected:
    """Fix the first wrong labels and drop the next ones."""
    material = gather(run)
    labels, clean = material.train.labels, material.clean
    assert clean is not None
    wrong = np.flatnonzero(labels != clean)[: fixes + drops].tolist()
    made = [Decision(i, int(labels[i]), "fix", int(clean[i])) for i in wrong[:fixes]]
    made += [Decision(i, int(labels[i]), "drop", int(labels[i])) for i in wrong[fixes:]]
    return apply_decisions(labels, made)


def write(folder: Path, run: Run, corrected: Corrected) -> Correction:
    sources = [f"row {i}" for i in range(len(corrected.labels))]
    return write_correction(folder, corrected, run, gather(run), sources=sources, made_from="decisions.csv")


@pytest.mark.parametrize("imbalance", [None, "long_tail(5)"])
def test_a_run_on_the_correction_has_the_new_labels_and_not_the_dropped_examples(
    tmp_path: Path, imbalance: str | None
) -> None:
    run = replace(DIGITS, imbalance=imbalance)
    before, corrected = gather(run), fix_and_drop(run, 30, 20)
    correction = write(tmp_path / "corrected", run, corrected)
    assert (correction.fixed, correction.dropped) == (30, 20)
    after = gather(correction.corrected(run))
    np.testing.assert_array_equal(after.train.labels, corrected.labels[corrected.keep])
    np.testing.assert_array_equal(after.train.inputs, np.asarray(before.train.inputs)[corrected.keep])
    assert after.corruption is not None
    assert before.corruption is not None
    assert after.corruption.counts.sum() == len(before.train) - 20
    assert after.corruption.flipped.sum() == before.corruption.flipped.sum() - 50
    same = correction.corrected(run)
    assert replace(same, noise=run.noise, rate=run.rate, imbalance=imbalance, data_hash=None) == run


@pytest.mark.parametrize("drops", [0, 5])
@pytest.mark.parametrize("imbalance", [None, "long_tail(5)"])
def test_another_seed_trains_on_the_same_examples(tmp_path: Path, imbalance: str | None, drops: int) -> None:
    run = replace(DIGITS, imbalance=imbalance, seed=3)
    before, corrected = gather(run), fix_and_drop(run, 10, drops)
    correction = write(tmp_path / "corrected", run, corrected)
    assert (correction.kept is None) == (imbalance is None and not drops)
    after = gather(replace(correction.corrected(run), seed=4))
    np.testing.assert_array_equal(after.train.labels, corrected.labels[corrected.keep])
    np.testing.assert_array_equal(after.train.inputs, np.asarray(before.train.inputs)[corrected.keep])
    if correction.kept is not None:  # a second correction works on the list of kept examples
        again = correction.corrected(run)
        nothing = apply_decisions(gather(again).train.labels, [])
        assert write(tmp_path / "again", again, nothing).corrected(again).imbalance == again.imbalance


def test_the_folder_holds_a_log_and_is_never_overwritten(tmp_path: Path) -> None:
    corrected = fix_and_drop(DIGITS, 3, 2)
    folder = tmp_path / "deep" / "corrected"
    first = write(folder, DIGITS, corrected)
    rows = list(csv.DictReader((folder / "changes.csv").read_text().splitlines()))
    assert len(rows) == 5
    assert rows[0].keys() == {"index", "source", "before", "after", "why"}
    assert rows[0]["source"] == f"row {rows[0]['index']}"
    assert [row["after"] for row in rows].count("") == 2
    content = json.loads((folder / "correction.json").read_text())
    assert content["made_from"] == "decisions.csv"
    assert content["run"]["data"] == "digits"
    assert write(folder, DIGITS, corrected) == first  # writing the same again changes nothing
    with pytest.raises(ValueError, match="already holds another correction"):
        write(folder, DIGITS, fix_and_drop(DIGITS, 4, 2))
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").touch()
    with pytest.raises(ValueError, match="is not empty and holds no correction"):
        write(tmp_path / "photos", DIGITS, corrected)


@pytest.mark.parametrize("written", [0, 1, 2, 3])
def test_an_interrupted_correction_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    corrected, folder, count = fix_and_drop(DIGITS, 3, 2), tmp_path / "corrected", 0

    def full(path: Path, write: Callable[[IO[bytes]], object]) -> None:
        nonlocal count
        if count == written:  # a kill leaves the temporary file, too
            path.with_name(f"{path.name}.1-0123abcd.part").write_bytes(b"half")
            raise OSError("no space left")
        count += 1
        replace_file(path, write)

    with monkeypatch.context() as disk:
        disk.setattr("reweigh.lab.suspects.correction.replace_file", full)
        disk.setattr("reweigh.lab.record.files.replace_file", full)
        with pytest.raises(OSError, match="no space left"):
            write(folder, DIGITS, corrected)
    assert len(list(folder.iterdir())) == written + 1
    assert gather(write(folder, DIGITS, corrected).corrected(DIGITS)).train.labels.shape == (1198,)
    assert not list(folder.glob("*.part"))
    (folder / "correction.json").unlink()
    next(folder.glob("labels-*")).unlink()  # the rest may belong to something else
    with pytest.raises(ValueError, match="is not empty and holds no correction"):
        write(folder, DIGITS, corrected)


def test_a_path_too_long_for_a_run_is_refused_before_writing(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 200) / ("y" * 200)
    with pytest.raises(ValueError, match="at most 256 characters"):
        write(folder, DIGITS, fix_and_drop(DIGITS, 1, 0))
    assert not folder.parent.exists()


@pytest.mark.parametrize("kind", ["drop", "fix"])
def test_a_correction_that_empties_a_class_is_refused(tmp_path: Path, kind: Literal["drop", "fix"]) -> None:
    labels = gather(DIGITS).train.labels
    sevens = np.flatnonzero(labels == 7).tolist()
    made = [Decision(i, 7, kind, 1 if kind == "fix" else 7) for i in sevens]
    with pytest.raises(ValueError, match=f"none of the {len(sevens)} examples of class '7'; keep at least one"):
        write(tmp_path / "corrected", DIGITS, apply_decisions(labels, made))
    assert not (tmp_path / "corrected").exists()
    kept_one = write(tmp_path / "corrected", DIGITS, apply_decisions(labels, made[1:]))
    assert kept_one.fixed + kept_one.dropped == len(sevens) - 1


@pytest.mark.parametrize("change", [{"validation": 0.2}, {"fold": "1/3"}, {"threshold_set": 0}])
def test_a_run_split_by_its_labels_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    run = replace(DIGITS, **change)
    corrected = Corrected(np.zeros(1200, np.int64), np.ones(1200, bool), ())
    with pytest.raises(ValueError, match="splits examples by label, so labels cannot be corrected"):
        write_correction(tmp_path / "c", corrected, run, gather(DIGITS), sources=(), made_from="")


def test_other_data_are_refused(tmp_path: Path) -> None:
    correction = write(tmp_path / "corrected", DIGITS, fix_and_drop(DIGITS, 1, 1))
    other = replace(correction, data_hash="0" * 64)
    with pytest.raises(ValueError, match="the run requires 000000000000"):
        gather(other.corrected(DIGITS))


def test_both_models_are_reported_and_nothing_is_trained_twice(tmp_path: Path) -> None:
    corrected, material = fix_and_drop(DIGITS, 400, 20), gather(DIGITS)
    correction = write(tmp_path / "corrected", DIGITS, corrected)
    executed: list[Run] = []

    def run_one(run: Run, root: Path) -> Path:
        executed.append(run)
        return execute(run, root)

    folder = retrain(DIGITS, tmp_path / "runs", correction, corrected, material, run_one=run_one)
    record = read_journal(folder)
    assert record.procedure == "correction"
    assert [role for role, _ in record.runs] == ["before", "after"]
    assert record.result is not None
    before, after = record.result["before"], record.result["after"]
    assert (before["examples"], after["examples"]) == (1200, 1180)
    assert before["wrong_labels"] == pytest.approx(0.4, abs=0.01)
    assert after["wrong_labels"] < 0.06
    assert before["holdout"] == after["holdout"] == "test"
    assert 0 < before["final"] <= before["best"] <= 1
    assert read_header(tmp_path / "runs" / record.runs[1][1]).examples == 1180
    assert retrain(DIGITS, tmp_path / "runs", correction, corrected, material, run_one=run_one) == folder
    assert len(executed) == 2
