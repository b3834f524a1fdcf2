"""Run folders written by version 0.1.0 at commit 422b14a: two finished runs, and one stopped after iteration 31."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from reweigh.lab.cli.app import app
from reweigh.lab.record import (
    list_runs,
    pack,
    read_margins,
    read_p,
    read_result,
    read_rows,
    read_run,
    summarise,
    unpack,
)
from reweigh.lab.record.rows import RENAMED
from reweigh.lab.run import execute
from reweigh.lab.train.model import load_model

DM = "digits-mlp-8-DM-0.5-8-symmetric-0.4-s0-f55cff9e5791"
ELR = "digits-mlp-8-ELR-symmetric-0.4-s0-1c0b93538212"
GCE = "digits-mlp-8-GCE-0.7-0.1-MAE-symmetric-0.4-s0-ad591410185c"
STATES = {DM: "done", ELR: "done", GCE: "resumable"}
TOLERANCE = {"rel": 1e-4, "abs": 4e-3}  # another machine may round differently, and flip one or two predictions


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the folders, which may be written to."""
    return Path(shutil.copytree(Path(__file__).parent / "previous", tmp_path / "runs"))


def test_all_are_listed(root: Path) -> None:
    found = list_runs(root)
    assert {summary.folder.name: summary.state for summary in found} == STATES
    assert [summary.step for summary in found] == [60, 60, 20]
    assert [summary.problem for summary in found] == [None, None, None]
    for summary in found:
        assert summary.run is not None
        assert summary.run.folder_name() == summary.folder.name


@pytest.mark.parametrize("name", [DM, ELR])
def test_a_finished_run_is_read(root: Path, name: str) -> None:
    header, rows, result = read_run(root / name)
    assert header.details["noise"]["measured"] == pytest.approx(0.39583, abs=1e-5)
    assert [row["step"] for row in rows] == [20, 40, 60]
    assert result is not None
    assert result["final"] == {key: value for key, value in rows[-1].items() if not isinstance(value, list)}
    assert result["diverged"] is None


@pytest.mark.parametrize("name", list(STATES))
def test_old_names_are_replaced(root: Path, name: str) -> None:
    _, rows, result = read_run(root / name)
    assert "corrupted_accuracy" in (root / name / "rows.jsonl").read_text()
    for row in (*rows, *([result["final"]] if result else [])):
        assert {"train_accuracy", "train_accuracy_clean"} <= row.keys()
        assert not row.keys() & RENAMED.keys()
    if result is not None:
        assert result["collapsed_classes"] == []
        assert "given_up" not in result


def test_p_and_margins_are_read(root: Path) -> None:
    header, rows, _ = read_run(root / DM)
    p, margins = read_p(root / DM), read_margins(root / DM)
    assert p.steps.tolist() == margins.steps.tolist() == [20, 40, 60]
    assert p.p.shape == margins.margins.shape == margins.rivals.shape == (header.examples, 3)
    np.testing.assert_allclose(p.p.astype(float).mean(0), [row["p_mean"] for row in rows], atol=1e-4)


@pytest.mark.parametrize("name", [DM, ELR])
@pytest.mark.parametrize("which", ["final", "best"])
def test_a_model_is_loaded(root: Path, name: str, which: str) -> None:
    net, card = load_model(root / name, which)
    assert net(torch.zeros(2, 64)).shape == (2, 10)
    assert card.run == summarise(root / name).run
    assert "train_accuracy" in card.metrics["final"]


def test_the_command_line_reads_them(root: Path) -> None:
    def reweigh(*args: object) -> str:
        ended = CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=False)
        assert ended.exit_code == 0, ended.stderr
        return ended.stdout

    listed = json.loads(reweigh("runs", root, "--json"))["runs"]
    assert {Path(run["folder"]).name: run["state"] for run in listed} == STATES
    assert listed[0]["result"] == read_result(root / DM)
    shown = json.loads(reweigh("show", root / DM, "--json"))
    assert shown["rows"] == read_rows(root / DM)
    page = root.parent / "page.html"
    assert json.loads(reweigh("report", root, "-o", page, "--json"))["runs"] == 3
    for weighting in ("DM(0.5, 8)", "ELR", "GCE(0.7)"):
        assert weighting in page.read_text()


def test_a_packed_run_is_unpacked(root: Path, tmp_path: Path) -> None:
    pack([root / DM, root / GCE], tmp_path / "runs.zip", checkpoints=True)
    assert unpack(tmp_path / "runs.zip", tmp_path / "other").added == [DM, GCE]
    assert read_rows(tmp_path / "other" / DM) == read_rows(root / DM)


def test_the_interrupted_run_resumes(root: Path, tmp_path: Path) -> None:
    run = summarise(root / GCE).run
    assert run is not None
    steps: list[int] = []
    execute(run, root, watch=lambda update: steps.append(update.step))
    assert min(steps) >= 31  # it did not start again
    assert summarise(root / GCE).state == "done"
    execute(run, tmp_path / "scratch")
    resumed, scratch = read_run(root / GCE), read_run(tmp_path / "scratch" / GCE)
    assert list(resumed[1][-1]) == list(scratch[1][-1])
    for old, new in zip(resumed[1], scratch[1], strict=True):  # rows of the previous version have fewer columns
        assert old == {key: pytest.approx(new[key], **TOLERANCE) for key in old}
    assert resumed[2] is not None
    assert scratch[2] is not None
    assert resumed[2]["final"] == {key: pytest.approx(value, **TOLERANCE) for key, value in scratch[2]["final"].items()}
    assert resumed[2].keys() == scratch[2].keys()
