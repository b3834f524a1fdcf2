"""What a search tells: its page, its script, its command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reweigh.cli.app import app
from reweigh.search import plan_search, search
from reweigh.search.page import page
from reweigh.search.site import Site
from reweigh.search.slurm import options, slurm_script
from reweigh.search.workers import device_for

FIELDS: dict[str, Any] = {
    "data": "digits",
    "net": "mlp-8",
    "noise": "symmetric",
    "rate": 0.4,
    "iterations": 20,
    "batch_size": 32,
    "evaluate_every": 10,
}
GRID = "DM(lam={0, 0.5}, beta=2)"
CPU = {"device": "cpu"}


def test_the_map_and_the_lines_show_every_trial(tmp_path: Path) -> None:
    outcome = search(plan_search(FIELDS, "DM(lam={0, 1}, beta={2, 8})", seeds=()), tmp_path, where=CPU)
    told = page(outcome)
    assert told.count("<circle") == 4
    assert told.count("<polyline") == 4
    assert ">lam<" in told
    assert ">beta<" in told


def test_the_slurm_script() -> None:
    command = ["reweigh", "search", *options({"space": "DM(lam=0..2, beta=8)", "batch_size": 64})]
    script = slurm_script(command, 8, "postgresql://me:secret@host/x")
    assert "#SBATCH --array=0-7" in script
    assert "exec srun reweigh search --space 'DM(lam=0..2, beta=8)' --batch-size 64" in script
    assert "secret" not in script
    with pytest.raises(ValueError, match="a database that all of them reach"):
        slurm_script(command, 8, None)


def test_workers_share_what_gpus_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert [device_for(i, {})["device"] for i in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert device_for(1, CPU) == CPU
    site = Site("sqlite:///x", Path("runs"), CPU)
    assert Site.from_mapping(json.loads(json.dumps(site.to_mapping()))) == site


def test_the_command(tmp_path: Path) -> None:
    words = options({**FIELDS, **CPU, "space": GRID, "seeds": 1, "runs": tmp_path, "validation_labels": "noisy"})
    done = CliRunner().invoke(app, ["search", *words])
    assert done.exit_code == 0, done.output
    assert "validation set: noisy: 20 %" in done.output
    assert "on all training data: test accuracy" in done.output
    (folder,) = (path.parent for path in tmp_path.glob("*/search.html"))
    told = CliRunner().invoke(app, ["search", *words, "--json"])
    assert json.loads(told.stdout)["study"] == folder.name
    joined = ["search", "--join", "--study", folder.name, "--storage", f"sqlite:///{folder}/study.db", "--json"]
    again = CliRunner().invoke(app, [*joined, "--runs", str(tmp_path), "--device", "cpu"])
    assert json.loads(again.stdout) == json.loads(told.stdout)
    assert CliRunner().invoke(app, ["search", "--data", "digits", "--net", "mlp-8"]).exit_code == 2
