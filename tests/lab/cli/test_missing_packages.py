"""Without a package of the extra `lab`, a command prints one line that says how to install it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec
PathFinder.find_spec = staticmethod(
    lambda name, *rest: None if name.partition(".")[0] == {package!r} else find(name, *rest)
)
sys.argv = ["reweigh", *{words!r}]
from reweigh.__main__ import main
main()
"""
RUN = ["--net", "mlp-4", "--weighting", "CCE", "--iterations", "2", "--device", "cpu"]


def call(package: str, words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `reweigh` with these words in `folder`, as if the package were not installed."""
    program = PROGRAM.format(package=package, words=words)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.parametrize("words", [[], ["--help"], ["--version"], ["train", "--help"], ["runs"]])
def test_the_command_line_needs_typer(words: list[str], tmp_path: Path) -> None:
    ended = call("typer", words, tmp_path)
    assert ended.returncode == 1
    assert ended.stderr == "reweigh: the command line needs typer: pip install 'reweigh[lab]'\n"
    assert ended.stdout == ""


@pytest.mark.parametrize(
    ("package", "name", "words"),
    [
        ("PIL", "pillow", ["data", "info", "images"]),
        ("PIL", "pillow", ["train", "--data", "mine.csv", *RUN]),
        ("safetensors", "safetensors", ["train", "--data", "mine.csv", *RUN]),
        ("safetensors", "safetensors", ["suspects", "mine.csv", "--iterations", "2", "--device", "cpu"]),
        ("safetensors", "safetensors", ["predict", "model", "mine.csv"]),
        ("safetensors", "safetensors", ["retrieve", "model"]),
        ("sklearn", "sklearn", ["demo"]),
        ("sklearn", "sklearn", ["train", "--data", "digits", *RUN]),
        ("sklearn", "sklearn", ["data", "info", "digits"]),
        ("matplotlib", "matplotlib", ["edf", "CCE", "-o", "curves.png"]),
    ],
)
def test_a_command_names_the_extra_it_needs(package: str, name: str, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("a,label\n" + "".join(f"{i},{'xy'[i % 2]}\n" for i in range(20)))
    (tmp_path / "images" / "a").mkdir(parents=True)
    (tmp_path / "images" / "a" / "0.png").write_bytes(b"")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.json").write_text("{}")
    ended = call(package, words, tmp_path)
    assert ended.returncode == 1, ended.stderr
    extra = "plot" if package == "matplotlib" else "lab"
    assert ended.stderr.splitlines()[-1] == f"reweigh: {name} is not installed: pip install 'reweigh[{extra}]'"
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("package", ["PIL", "safetensors", "sklearn"])
@pytest.mark.parametrize("words", [["--help"], ["train", "--help"]])
def test_other_commands_do_without(package: str, words: list[str], tmp_path: Path) -> None:
    ended = call(package, words, tmp_path)
    assert ended.returncode == 0, ended.stderr
