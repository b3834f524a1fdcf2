from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reweigh.lab.record import read_rows


@pytest.fixture
def halfway(finished: Path, tmp_path: Path) -> Path:
    """The finished run without its result and its last two rows, as a crash before the first checkpoint leaves it."""
    folder = tmp_path / "runs" / finished.name
    shutil.copytree(finished, folder)
    shutil.rmtree(folder / "model")
    (folder / "result.json").unlink()
    rows = (folder / "rows.jsonl").read_text().splitlines(keepends=True)
    (folder / "rows.jsonl").write_text("".join(rows[:2]))
    return folder


def test_resume_gives_identical_rows(reweigh, halfway: Path, finished: Path) -> None:
    ended = reweigh("resume", halfway)
    assert ended.code == 0
    assert ended.stdout.splitlines()[0] == str(halfway)
    assert read_rows(halfway) == read_rows(finished)


def test_resume_by_hash(reweigh, halfway: Path) -> None:
    assert reweigh("resume", halfway.name[-12:-6], "--runs", halfway.parent).code == 0
    assert (halfway / "result.json").is_file()


def test_resume_all_continues_after_a_broken_run(reweigh, halfway: Path) -> None:
    root = halfway.parent
    (root / "broken").mkdir()
    (root / "broken" / "run.json").write_text("{")
    ended = reweigh("resume", "--all", root, "--json")
    assert ended.code == 3
    assert "1 of 2 runs failed" in ended.stderr
    assert {run["run"]: run["state"] for run in ended.json["runs"]} == {"broken": "failed", halfway.name: "done"}
    assert (halfway / "result.json").is_file()
    shutil.rmtree(root / "broken")
    (halfway / "checkpoint.pt").write_bytes(b"left by a kill after the result")
    ended = reweigh("resume", "--all", root)
    assert (ended.code, ended.stdout) == (0, f"nothing to resume in {root}\n")
    assert not (halfway / "checkpoint.pt").exists()


def test_execution_fields_may_change(reweigh, halfway: Path) -> None:
    ended = reweigh("resume", halfway, "--device", "cuda:99")
    assert ended.code == 2
    assert "cuda:99" in ended.stderr
    assert reweigh("resume", halfway, "--lr", "0.1").code == 2  # that would be another run


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ([], 2, "either a run or --all"),
        (["x", "--all", "y"], 2, "either a run or --all"),
        (["x", "--runs", "nowhere"], 3, "x: no such run"),
        (["--all", "nowhere"], 3, "nowhere: no such folder"),
    ],
)
def test_wrong_options(reweigh, line: list[str], code: int, message: str) -> None:
    ended = reweigh("resume", *line)
    assert ended.code == code
    assert message in ended.stderr


def test_a_renamed_folder_is_refused(reweigh, halfway: Path) -> None:
    other = halfway.rename(halfway.with_name("other"))
    ended = reweigh("resume", other)
    assert ended.code == 3
    assert f"rename it back to {halfway.name}" in ended.stderr
