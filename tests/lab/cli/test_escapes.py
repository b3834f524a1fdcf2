"""Control characters in file names and records never reach the terminal."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import reweigh.lab.cli
from reweigh.lab.record.files import read_json, write_json

EVIL = "\x1b]0;title\x07\x1b[2J\x9b1m"


@pytest.fixture
def evil(finished: Path, tmp_path: Path) -> Path:
    """A run whose folder, settings, provenance and classes have escape sequences."""
    folder = tmp_path / "runs" / f"{EVIL}-{finished.name}"
    shutil.copytree(finished, folder)
    header, result = read_json(folder / "run.json"), read_json(folder / "result.json")
    header["details"] |= {"holdout": EVIL, "class_names": [f"{EVIL}{k}" for k in range(10)]}
    header["environments"] = [{"device_name": EVIL}]
    write_json(folder / "run.json", header)
    write_json(folder / "result.json", result | {"holdout": EVIL, "collapsed_classes": [EVIL]})
    return folder


@pytest.mark.parametrize(
    "line",
    [
        ["show", "RUN"],
        ["runs", "ROOT"],
        ["resume", "RUN"],
        ["suspects", "RUN"],
        ["report", "RUN", "-o", "ROOT/report.html"],
        ["report", "nowhere/RUN"],
        ["runs", "unpack", "RUN.zip"],
        ["predict", "RUN", "RUN.csv"],
        ["train", "--data", f"{EVIL}.csv", "--net", "linear", "--weighting", "CCE"],
        ["train", "--data", "digits", "--net", EVIL, "--weighting", f"CCE({EVIL})"],
    ],
    ids=lambda line: " ".join(line[:2]).replace(EVIL, "EVIL"),
)
def test_no_command_prints_them(reweigh, evil: Path, line: list[str]) -> None:
    words = [word.replace("RUN", str(evil)).replace("ROOT", str(evil.parent)) for word in line]
    for ended in (reweigh(*words), reweigh("--debug", *words)):
        text = ended.stdout + ended.stderr
        assert text
        assert not [char for char in text if (ord(char) < 32 and char != "\n") or 127 <= ord(char) < 160]


UNEXPECTED = """
import reweigh.__main__
import reweigh.lab.cli.app


def fail(prog_name: str) -> None:
    raise Exception("\\x1b[2J")


reweigh.lab.cli.app.app = fail
reweigh.__main__.main()
"""


def test_an_unexpected_error_is_printed_without_them() -> None:
    ended = subprocess.run([sys.executable, "-c", UNEXPECTED], capture_output=True, check=False)
    assert ended.returncode == 1
    assert b"Exception: \\x1b[2J" in ended.stderr
    assert b"\x1b" not in ended.stderr


def test_commands_print_by_echo() -> None:
    for path in Path(reweigh.lab.cli.__file__).parent.glob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        prints = any(isinstance(called, ast.Name) and called.id == "print" for called in calls)
        assert prints == (path.name == "terminal.py"), f"{path.name}: use echo or print_stderr of lab/cli/terminal.py"
