"""`python -m paper` on small experiments."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from paper.__main__ import main
from reweigh.lab.record import list_runs
from reweigh.lab.run import execute
from reweigh.lab.spec import Run

ROOT = Path(__file__).resolve().parents[2]
FILE = """
from paper import Cell, Experiment, Reported
from paper.protocols import search_rate
from reweigh.lab.spec import Run

def run(weighting, **fields):
    return Run(data="digits", net="mlp-4", weighting=weighting, noise="symmetric", rate=0.4, iterations=6,
               evaluate_every=6, device="cpu", **fields)

EXPERIMENT = [
    Experiment("first", "The first", "ours", (
        Cell("CCE", "r = 0.4", run("CCE"), (Reported("final", 60.9),)),
        Cell("LS", "r = 0.4", None, (Reported("printed", 50.1, "SL"),)),
        Cell("DM", "own lr", search_rate(run("DM(0.5, 8)"), (0.01, 0.1), short=1)),
    ), differs="It is a toy."),
    Experiment("second", "The second", "text", (Cell("CCE", "clean", run("CCE", inputs="mean")),)),
]
"""


class Ended(NamedTuple):
    """Exit code and output of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        assert self.stdout.count("\n") == 1, f"expected one JSON object, got {self.stdout!r}"
        return json.loads(self.stdout)


@pytest.fixture
def paper(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """`paper("run", "a.py", ...)`."""

    def call(*arguments: object) -> Ended:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as error:  # argparse: --help, or a wrong option
            code = int(error.code or 0)
        return Ended(code, *capsys.readouterr())

    return call


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def test_tables_have_measured_and_reported_numbers(paper, file: Path, tmp_path: Path) -> None:
    line = ["run", file, "--only", "first", "--runs", tmp_path / "runs", "--seeds", "0,1", "-o", tmp_path / "a.md"]
    ended = paper(*line)
    assert ended.code == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0] == "The first"
    assert "Differences: It is a toy." in lines
    header = lines[lines.index("r = 0.4 (protocol ours, fp32, not deterministic)") + 1]
    assert header.split() == ["final", "paper", "best", "paper,", "unspecified", "seeds"]
    assert any(row.startswith("CCE ") and "±" in row and " 60.9 " in row and row.endswith(" 2") for row in lines)
    assert any(row.startswith("LS") and "50.1 [SL]" in row for row in lines)
    assert any(row.startswith("DM") and "lr 0." in row for row in lines)
    assert "| LS | - | - | - | 50.1 [SL] | - |" in (tmp_path / "a.md").read_text()
    assert len(list((tmp_path / "runs").iterdir())) == 2 + 2 + 2  # CCE, trials, chosen
    again = paper(*line)
    assert again.stdout == ended.stdout
    assert not again.stderr  # nothing was left to do


def test_a_dry_run_runs_nothing(paper, file: Path, tmp_path: Path) -> None:
    line = ["run", file, "--dry-run", "--runs", tmp_path / "runs"]
    ended = paper(*line)
    assert ended.code == 0
    assert "4 of 4 runs are missing" in ended.stdout
    assert not (tmp_path / "runs").exists()
    assert paper("run", file, "--only", "second", "--runs", tmp_path / "runs").code == 0
    runs = paper(*line, "--json").json["runs"]
    assert [run["state"] for run in runs] == ["missing"] * 3 + ["done"]
    assert [run["trial"] for run in runs] == [True, True, False, False]


def test_several_files_are_one_queue(paper, file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(FILE.replace('"first"', '"third"').replace('"second"', '"fourth"'))
    line = ["run", file, other, "--only", "CCE", "--runs", tmp_path / "runs"]
    ended = paper(*line, "--json")
    assert ended.code == 0, ended.stderr
    assert [each["experiment"] for each in ended.json["experiments"]] == ["first", "second", "third", "fourth"]
    assert len(list((tmp_path / "runs").iterdir())) == 2  # all tables share them
    assert "1/2 " in ended.stderr
    assert "1/1 " not in ended.stderr
    assert "0 of 4 runs are missing" in paper(*line, "--dry-run").stdout


def test_saved_results_are_not_run_again(paper, file: Path, tmp_path: Path) -> None:
    line = ["run", file, "--only", "CCE", "--save", tmp_path / "results", "--json"]
    first = paper(*line, "--runs", tmp_path / "runs").json
    content = json.loads((tmp_path / "results" / "first.json").read_text())
    assert content["entries"][0]["finding"]["metrics"]["final"] is not None
    assert content["environments"][0]["torch"]
    elsewhere = paper(*line, "--runs", tmp_path / "elsewhere").json
    assert elsewhere == first
    assert not list((tmp_path / "elsewhere").iterdir())
    added = [*line[:4], "--add", tmp_path / "results" / "first.json", "--json", "--runs", tmp_path / "elsewhere"]
    assert paper(*added).json == first


def test_results_of_several_machines_are_added(paper, tiny, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from paper import Cell, Experiment\nfrom reweigh.lab.spec import Run\n"
        f"run = Run.from_mapping({tiny().to_mapping()!r})\n"
        "EXPERIMENT = Experiment('mine', 'Mine', 'ours', (Cell('CCE', 'a', run),))\n"
    )
    line = ["run", path, "--runs", tmp_path / "runs", "--save", tmp_path / "results", "--seeds", "0,1"]
    stopped = paper(*line, "--minutes", "1e-9")
    assert stopped.code == 4
    assert "the same command resumes" in stopped.stderr
    assert not json.loads((tmp_path / "results" / "mine.json").read_text())["entries"]
    assert paper(*line).code == 0
    assert len(json.loads((tmp_path / "results" / "mine.json").read_text())["entries"]) == 2
    rest = ["run", path, "--runs", tmp_path / "elsewhere", "--save", tmp_path / "two.json", "--seeds", "2"]
    assert paper(*rest).code == 0
    both = ["--seeds", "0,1,2", "--add", tmp_path / "results" / "mine.json", "--add", tmp_path / "two.json"]
    assert paper("run", path, "--runs", tmp_path / "none", "--minutes", "1e-9", *both).code == 0
    failed = paper(*line, "--data-root", tmp_path, "--seeds", "2")  # there are no data there
    assert failed.code == 1
    assert "failed: " in failed.stderr


def test_quick_needs_no_data(paper, file: Path, tmp_path: Path) -> None:
    ended = paper("run", file, "--quick", "--runs", tmp_path)
    assert ended.code == 0, ended.stderr
    assert "quick: toy data" in ended.stdout
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["quick"]
    runs = [path.name for path in (tmp_path / "quick").iterdir() if path.is_dir()]
    assert runs
    assert all(name.startswith("toy-pictures.npz-mlp-8-") for name in runs)


def test_quick_runs_a_real_experiment(paper, tmp_path: Path) -> None:
    headline = ROOT / "paper" / "experiments" / "cifar10_headline.py"
    line = ["--quick", "--only", "cifar10_rates CCE", "--runs", tmp_path, "--device", "cpu"]
    ended = paper("run", headline, *line)
    assert ended.code == 0
    assert "\nCCE" in ended.stdout


def test_the_figure_of_an_experiment(paper, file: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = ROOT / "paper" / "experiments" / "figure_1b.py"
    ended = paper("run", drawn, "--figure", tmp_path / "1b.svg")
    assert ended.code == 0
    assert (tmp_path / "1b.svg").read_text().startswith("<?xml")
    none = paper("run", file, "--quick", "--only", "second", "--runs", tmp_path, "--figure", tmp_path / "x.svg")
    assert none.code == 2
    assert "no figure to draw" in none.stderr


def test_figures_of_runs(paper, tiny: Callable[..., Run], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert paper("figure", "1b", "-o", tmp_path / "1b.svg").stdout == f"{tmp_path / '1b.svg'}\n"
    for beta in (4, 8):
        execute(tiny(f"DM(0.5, {beta})"), tmp_path / "runs")
    for name in ("2", "grid"):
        assert paper("figure", name, tmp_path / "runs", "-o", tmp_path / f"{name}.svg").code == 0
        assert (tmp_path / f"{name}.svg").stat().st_size > 0
    for line, code, message in (
        (["2", tmp_path / "runs", "--rate", "0.3", "-o", tmp_path / "a.svg"], 2, "at a noise rate of 0.3"),
        (["9", "-o", tmp_path / "a.svg"], 2, "invalid choice: '9'"),
        (["1b", "-o", tmp_path / "a.txt"], 2, ".svg, .png or .pdf"),
        (["grid", tmp_path, "-o", tmp_path / "a.svg"], 3, "neither "),
    ):
        ended = paper("figure", *line)
        assert (ended.code, message in ended.stderr) == (code, True), ended.stderr


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (["--only", "nothing"], 2, "error: only is 'nothing', which matches no row, column"),
        (["--seeds", "x"], 2, "seeds are 'x'"),
        (["--save", "a.json"], 2, "one file, but there are first, second"),
        (["--quick", "--save", "results"], 2, "meaningless"),
        (["--add", "none.json"], 3, "none.json"),
        (["--precision", "fp8"], 2, "precision is 'fp8'"),
        (["--jobs", "many"], 2, "--jobs: invalid int value: 'many'"),
        (["none.py"], 3, "none.py: no such file"),
    ],
)
def test_wrong_commands(paper, file: Path, tmp_path: Path, line: list[str], code: int, message: str) -> None:
    ended = paper("run", file, *line, "--runs", tmp_path / "runs")
    assert (ended.code, message in ended.stderr) == (code, True), ended.stderr
    assert not (tmp_path / "runs").exists()


def test_a_reason_for_several_failures_is_shown_once(paper, file: Path, tmp_path: Path) -> None:
    file.write_text(FILE.replace('data="digits"', 'data="digitz"'))
    ended = paper("run", file, "--only", "first", "--runs", tmp_path / "runs")
    assert ended.code == 1
    assert ended.stderr.count("did you mean 'digits'?") == 1
    assert "3 runs failed" in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_with_a_checkpoint(number: int, file: Path, tmp_path: Path) -> None:
    file.write_text(FILE.replace("iterations=6", "iterations=1_000_000"))
    command = [sys.executable, "-m", "paper", "run", str(file), "--only", "second", "--runs", str(tmp_path / "runs")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        for line in process.stderr:
            if "1/1 " in line:
                break
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 4
    assert "The second" in output
    assert [summary.state for summary in list_runs(tmp_path / "runs")] == ["resumable"]


def test_the_help_warns_that_files_are_executed(paper) -> None:
    assert "trust" in paper("run", "--help").stdout


def test_extras_are_not_imported() -> None:
    program = "import sys, paper.__main__\nprint(*{name.partition('.')[0] for name in sys.modules})"
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT)
    extras = {"typer", "rich", "sklearn", "matplotlib", "optuna", "pyarrow", "gensim", "scipy"}
    assert not set(ended.stdout.split()) & extras
