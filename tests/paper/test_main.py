"""`python -m paper`, for machines without a terminal program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from paper.__main__ import main

FILE = Path(__file__).resolve().parents[2] / "paper" / "experiments" / "cifar10_headline.py"


def test_what_it_measures_is_printed_and_kept(
    tiny, toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from paper import Cell, Experiment\nfrom reweigh.lab.spec import Run\n"
        f"run = Run.from_mapping({tiny().to_mapping()!r})\n"
        "EXPERIMENT = Experiment('mine', 'Mine', 'ours', (Cell('CCE', 'a', run),))\n"
    )
    line = [str(path), "--runs", str(tmp_path / "runs"), "--save", str(tmp_path / "results"), "--seeds", "0,1"]
    assert main([*line, "--minutes", "1e-9"]) == 4
    assert not json.loads((tmp_path / "results" / "mine.json").read_text())["entries"]
    assert main(line) == 0
    assert len(json.loads((tmp_path / "results" / "mine.json").read_text())["entries"]) == 2
    rest = [str(path), "--runs", str(tmp_path / "elsewhere"), "--save", str(tmp_path / "two.json"), "--seeds", "2"]
    assert main(rest) == 0
    both = ["--seeds", "0,1,2", "--add", str(tmp_path / "results" / "mine.json"), "--add", str(tmp_path / "two.json")]
    assert main([str(path), "--runs", str(tmp_path / "none"), "--minutes", "1e-9", *both]) == 0
    told = capsys.readouterr().out
    assert "1/2 toy-pictures.npz-mlp-8-CCE" in told
    assert "# Mine" in told
    assert main([*line, "--data-root", str(tmp_path), "--seeds", "2"]) == 1  # there are no data there
    assert "failed: " in capsys.readouterr().err


def test_quick(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(FILE), "--quick", "--only", "cifar10_rates CCE", "--runs", str(tmp_path), "--device", "cpu"]) == 0
    assert "| CCE |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "code", "told"),
    [
        (["--quick", "--save", "results"], 2, "error: quick results mean nothing and are not saved"),
        (["--only", "nobody"], 2, "error: only is 'nobody'"),
        (["--add", "none.json"], 3, "error: none.json: "),
    ],
)
def test_a_wrong_command_ends_in_a_sentence(
    wrong: list[str], code: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(FILE), "--runs", str(tmp_path), *wrong]) == code
    assert capsys.readouterr().err.startswith(told)


def test_it_does_without_extras() -> None:
    program = "import sys, paper.__main__\nprint(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert not set(loaded.split()) & {"typer", "rich", "sklearn", "matplotlib", "optuna", "pyarrow", "gensim", "scipy"}
