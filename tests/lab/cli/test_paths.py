"""Runs and models are found by several names; no command overwrites its input or the record of a run."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from reweigh.errors import DataError
from reweigh.lab.cli.paths import PAGE, check_output, check_outside, find_model, find_run, input_files
from reweigh.lab.spec import Run


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "good.csv"
    file.write_text("a,b,label\n" + "".join(f"{i},{i % 2},{'xy'[i % 2]}\n" for i in range(20)))
    return file


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_an_input_is_not_written_over(table: Path, tmp_path: Path, link) -> None:
    output = table if link is None else tmp_path / "other.csv"
    if link is not None:
        link(table, output)
    with pytest.raises(ValueError, match=r"--output is .*, which is an input of this command"):
        check_output("--output", output, (".csv",), [None, tmp_path / "gone.csv", table])
    check_output("--output", tmp_path / "new.csv", (".csv",), [table])


def test_only_an_output_of_reweigh_is_replaced(table: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"--output is .*good\.csv, which already exists and was not written by reweigh"
    ):
        check_output("--output", table, (".csv",), begins="example,class")
    for name, text in (("before.csv", "example,class,p\n"), ("empty.csv", "")):
        (tmp_path / name).write_text(text)
        check_output("--output", tmp_path / name, (".csv",), begins="example,class")


def test_nothing_is_written_among_the_data(tmp_path: Path) -> None:
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    for place in ("photos/out.csv", "photos/cat/out.csv", "photos/../photos/out.csv"):
        with pytest.raises(ValueError, match=r"--output is .*, inside the data folder .*photos"):
            check_output("--output", tmp_path / place, (".csv",), [tmp_path / "photos"])
    check_output("--output", tmp_path / "out.csv", (".csv",), [tmp_path / "photos"])
    check_outside("--output", tmp_path / "photos corrected", [tmp_path / "photos", tmp_path / "none"])


def test_no_file_of_a_record_can_be_an_output(finished: Path) -> None:
    for file in (path for path in finished.rglob("*") if path.is_file()):
        with pytest.raises(ValueError, match="expected a file that ends in"):
            check_output("--output", file, (*PAGE, ".svg", ".png", ".pdf", ".csv"))


def test_a_mistyped_output_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    for name, message in (
        ("page.csv", r"ends in \.html or \.htm"),
        ("page", r"ends in \.html or \.htm"),
        ("nowhere/page.html", "there is no folder .*nowhere"),
        ("folder.html", "a folder; expected a file"),
    ):
        with pytest.raises(ValueError, match=message):
            check_output("--page", tmp_path / name, PAGE)
    check_output("--page", None, PAGE)
    assert not (tmp_path / "nowhere").exists()


def test_the_files_of_a_run_are_its_data_and_labels() -> None:
    run = Run(data="a.csv", test_data="b.csv", noise="given('c.csv', key='label')", net="linear", weighting="CCE")
    assert {"a.csv", "b.csv", "c.csv"} <= {str(file) for file in input_files(run)}
    files = {str(file) for file in input_files(replace(run, data_root="there"))}
    assert files == {"there/a.csv", "there/b.csv", "c.csv", "None", "label"}, "not other files of the folder"
    assert "there" in input_files(Run(data="cifar10", data_root="there", net="linear", weighting="CCE"))


def test_every_command_checks_its_outputs_first(
    reweigh, finished: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(table.parent)
    before = table.read_bytes()
    record = (finished / "rows.jsonl").read_bytes()
    for line in (
        ("predict", finished, "good.csv", "-o", "good.csv"),
        ("predict", finished, "good.csv", "-o", "nowhere/x.csv"),
        ("predict", finished, "new.csv", "-o", "good.csv"),
        ("suspects", "good.csv", "-o", "good.csv"),
        ("suspects", "good.csv", "--page", "good.csv"),
        ("suspects", finished, "-o", finished / "rows.jsonl"),
        ("report", finished, "-o", "good.csv"),
        ("explore", "-o", "good.csv"),
        ("edf", "CCE", "-o", "good.csv"),
    ):
        ended = reweigh(*line)
        assert ended.code == 2, (line, ended.stderr)
        assert ended.stderr.splitlines()[-1].startswith(("reweigh: --output is ", "reweigh: --page is ")), line
        assert ended.stderr.count("\n") == 1 + ended.stderr.startswith("chosen: "), line
    assert table.read_bytes() == before
    assert (finished / "rows.jsonl").read_bytes() == record
    assert sorted(path.name for path in table.parent.iterdir()) == ["good.csv"], "nothing was trained or written"


def test_a_run_has_several_names(finished: Path, tmp_path: Path) -> None:
    root = finished.parent
    assert find_run(str(finished), tmp_path) == finished
    assert find_run(finished.name, root) == finished
    assert find_run(finished.name[-12:-8], root) == finished
    assert find_model(str(finished / "model"), tmp_path) == finished / "model"
    assert find_model(finished.name[-12:], root) == finished / "model"
    with pytest.raises(DataError, match=r"no run\.json"):
        find_run(str(tmp_path), root)
    with pytest.raises(DataError, match="no such run"):
        find_run("nothing", root)


def test_an_ambiguous_hash_is_refused(tmp_path: Path) -> None:
    for name in ("a-s0-12ab", "b-s0-12cd"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("")
    with pytest.raises(ValueError, match="2 runs"):
        find_run("12", tmp_path)
    with pytest.raises(DataError, match="no model yet"):
        find_model("12a", tmp_path)
    (tmp_path / "a-s0-12ab" / "result.json").write_text("{}")
    with pytest.raises(DataError, match="a-s0-12ab: finished, but its model is missing; remove the run"):
        find_model("12a", tmp_path)
