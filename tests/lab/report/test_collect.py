from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reweigh.errors import DataError
from reweigh.lab.report import collect, group, report_page
from reweigh.lab.report.collect import leading


def test_runs_that_differ_only_in_their_seed_are_one_group(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    for seed in (1, 0):
        make_run(tmp_path, seed=seed)
    make_run(tmp_path, "CCE")
    groups = {member.label: member for member in group(collect([tmp_path]).runs)}
    assert set(groups) == {"DM(0.5, 8)", "CCE"}
    both = groups["DM(0.5, 8)"]
    assert [run.header.run.seed for run in both.runs] == [0, 1]
    finals = both.score("final")
    curve = both.curve("test_accuracy")
    assert curve.mean[-1] == pytest.approx(sum(finals) / 2)
    assert curve.deviation[-1] == pytest.approx(abs(finals[1] - finals[0]) / 2**0.5)
    assert groups["CCE"].curve("test_accuracy").deviation == [None] * 6


def test_a_weighting_written_two_ways_is_one_group(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    make_run(tmp_path, "DM(0.5, 8)", seed=0)
    make_run(tmp_path, "DM(beta=8, lam=0.5)", seed=1)
    (both,) = group(collect([tmp_path]).runs)
    assert [run.header.run.seed for run in both.runs] == [0, 1]


def test_seeds_on_data_that_have_changed_are_told_apart(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    make_run(tmp_path, seed=0)
    make_run(tmp_path, seed=1, data_hash="c" * 64, classes=("one", "more"))
    make_run(tmp_path, "CCE", seed=0)
    collected = collect([tmp_path])
    groups = {member.label: member for member in group(collected.runs)}
    new, old = (f"hash of data {digit * 12}" for digit in "cd")
    assert set(groups) == {f"DM(0.5, 8), {new}", f"DM(0.5, 8), {old}", f"CCE, {old}"}
    assert [[run.header.run.seed for run in member.runs] for member in groups.values()] == [[0], [0], [1]]
    assert old in report_page(collected)


def test_labels_name_what_differs_and_nothing_else(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    make_run(tmp_path, lr=0.1)
    make_run(tmp_path, lr=0.05)
    make_run(tmp_path, rate=0.2, lr=0.05)
    labels = {member.label for member in group(collect([tmp_path]).runs)}
    assert labels == {f"DM(0.5, 8), {rest}" for rest in ("rate 0.4, lr 0.1", "rate 0.4, lr 0.05", "rate 0.2, lr 0.05")}


def test_labels_leave_out_what_is_recorded_unless_nothing_else_differs(
    tmp_path: Path, make_run: Callable[..., Path]
) -> None:
    make_run(tmp_path, "DM(lam=0.5, beta=8.0)", lr=0.1, record_p=True)
    make_run(tmp_path, "GCE(q=0.7)", lr=0.05)
    groups = group(collect([tmp_path]).runs)
    assert {member.label for member in groups} == {"DM(0.5, 8), lr 0.1", "GCE(0.7), lr 0.05"}
    assert all(set(member.varying) == {"weighting", "lr"} for member in groups)
    make_run(tmp_path, "GCE(q=0.7)", lr=0.05, record_p=True)
    labels = {member.label for member in group(collect([tmp_path]).runs)}
    assert {"GCE(0.7), lr 0.05, record p False", "GCE(0.7), lr 0.05, record p True"} < labels


def test_seeds_of_unequal_length_meet_where_they_can(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    make_run(tmp_path, seed=0)
    stopped = make_run(tmp_path, seed=1, done=False)
    lines = (stopped / "rows.jsonl").read_bytes().splitlines(keepends=True)
    (stopped / "rows.jsonl").write_bytes(b"".join(lines[:2]))
    (both,) = group(collect([tmp_path]).runs)
    curve = both.curve("test_accuracy")
    assert len(curve.steps) == 6
    assert [deviation is None for deviation in curve.deviation] == [False, False, True, True, True, True]
    assert len(both.score("final")) == 1


def test_none_twice_and_the_damaged_named(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    good, bad = make_run(tmp_path), make_run(tmp_path, "CCE")
    (bad / "run.json").write_text("{")
    found = collect([tmp_path, good, tmp_path / "." / good.name])
    assert len(found.runs) == 1
    assert "run.json: not JSON" in found.problems[0]
    with pytest.raises(DataError, match=r"run\.json: not JSON"):
        collect([bad])
    with pytest.raises(DataError, match="neither a run nor a folder of runs"):
        collect([tmp_path / "nothing"])


def test_a_copy_of_a_run_counts_once(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    make_run(here, seed=0, done=False)
    finished = make_run(there, seed=0)
    for root in (here, there):
        make_run(root, seed=1)
        make_run(root, seed=2, data_hash="cd"[root == here] * 64)
    found = collect([here, there])
    assert finished in [run.folder for run in found.runs]  # not its unfinished copy
    assert sorted(run.header.run.seed for run in found.runs) == [0, 1, 2, 2]
    assert len(found.problems) == 2
    assert all("a copy of" in problem for problem in found.problems)


def test_a_name_in_another_encoding_gets_into_the_page(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    root = tmp_path / os.fsdecode(b"caf\xe9")
    good, bad = make_run(root), make_run(root, "CCE")
    (bad / "run.json").write_text("{")
    good.rename(root / os.fsdecode(b"\xe9t\xe9"))
    page = report_page(collect([root]), title=os.fsdecode(b"\xe9")).encode().decode()
    assert "caf\\udce9" in page
    assert '"folder":"\\udce9t\\udce9"' in page  # as JSON has it


def test_leading(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    for i, top in enumerate((0.5, 0.9, 0.7)):
        make_run(tmp_path, f"DM(0.5, {i})", top=top)
    make_run(tmp_path, "DM(0.5, 4)", done=False)
    assert [member.label for member in leading(group(collect([tmp_path]).runs), 2)] == ["DM(0.5, 1)", "DM(0.5, 2)"]
