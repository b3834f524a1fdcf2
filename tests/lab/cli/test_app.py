from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import reweigh as package

COMMANDS = ("demo", "train", "resume", "runs", "show", "edf", "data", "predict")


def test_help_of_every_command_needs_neither_torch_nor_numpy() -> None:
    program = """
import sys
from typer.main import get_command
from reweigh.lab.cli.app import app

def walk(command, path):
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, [*path, name])

for path in walk(get_command(app), []):
    try:
        app([*path, "--help"], prog_name="reweigh")
    except SystemExit as end:
        assert not end.code, (path, end.code)
    found = {"torch", "numpy", "matplotlib", "sklearn"} & sys.modules.keys()
    assert not found, (path, found)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    for path in ("", *COMMANDS, "runs pack", "runs unpack", "data list", "data get", "data info"):
        assert f"Usage: reweigh {path}".strip() in ended.stdout


def test_module_and_version() -> None:
    ended = subprocess.run([sys.executable, "-m", "reweigh", "--version"], capture_output=True, text=True, check=True)
    assert ended.stdout == f"reweigh {package.__version__}\n"


def test_characters_that_the_terminal_cannot_show_are_escaped(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("a,label\n" + "1,caf\u00e9\n2,\u732b\n" * 5, encoding="utf-8")
    line = [sys.executable, "-m", "reweigh", "data", "info", str(table)]
    latin = os.environ | {"PYTHONIOENCODING": "latin-1"}
    ended = subprocess.run(line, capture_output=True, encoding="latin-1", env=latin, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "caf\u00e9 " in ended.stdout
    assert r"\u732b " in ended.stdout


@pytest.mark.skipif(os.name != "posix", reason="closes streams by a shell")
@pytest.mark.parametrize(
    ("line", "code", "stdout", "stderr"),
    [
        ("data list >&-", 0, "", ""),
        ("runs {here}/none >&-", 3, "", "reweigh: {here}/none: no such folder\n"),
        ("runs {here}/none 2>&-", 3, "", ""),
        ("runs {here} 2>&-", 0, "no runs in {here}\n", ""),
        ("edf CCE <&- >&- 2>&-", 0, "", ""),
        ("data list | exec <&-", 0, "", ""),
    ],
)
def test_closed_streams_do_not_end_a_command(tmp_path: Path, line: str, code: int, stdout: str, stderr: str) -> None:
    line, stdout, stderr = (text.format(here=tmp_path) for text in (line, stdout, stderr))
    command = ["sh", "-c", f'"$0" -m reweigh {line}', sys.executable]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, stdout, stderr)


def test_every_command_is_in_the_help(reweigh) -> None:
    shown = reweigh("--help").stdout
    for name in COMMANDS:
        assert name in shown
    assert "130 Ctrl-C" in " ".join(shown.split())


def test_completion_is_offered(reweigh) -> None:
    assert "--install-completion" in reweigh("--help").stdout


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (["trian"], "train"),
        (["train", "--weight-dcay", "0"], "--weight-decay"),
        (["train", "--lr", "fast"], "--lr"),
        (["data", "gett"], "get"),
        (["edf"], "Missing argument"),
        (["show"], "Missing argument"),
    ],
)
def test_wrong_usage_is_2_and_suggests_the_closest_name(reweigh, line: list[str], hint: str) -> None:
    ended = reweigh(*line)
    assert ended.code == 2
    assert hint in ended.stderr
    assert not ended.stdout


@pytest.mark.parametrize("line", [["--debug", "edf", "DMM"], ["edf", "DMM", "--debug"]])
def test_debug_anywhere_shows_the_traceback(reweigh, line: list[str]) -> None:
    ended = reweigh(*line)
    assert ended.code == 2
    assert "Traceback" in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("reweigh: no weighting is named 'DMM'; did you mean 'DM'?")
    assert "Traceback" not in reweigh("edf", "DMM").stderr
