"""The page of a search, its SLURM script and its command."""

from __future__ import annotations

import json
import logging
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import optuna
import pytest
from typer.testing import CliRunner

from reweigh.lab.cli.app import app
from reweigh.lab.search import plan_search, read_outcome, search
from reweigh.lab.search.page import page
from reweigh.lab.search.slurm import options, slurm_script
from reweigh.lab.search.storage import open_storage, sqlite_url
from reweigh.lab.search.study import Keeper, open_study, suggest
from reweigh.lab.search.worker import Site, claim
from reweigh.lab.search.workers import device_for

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


def test_optuna_is_silenced_only_during_a_search(tmp_path: Path) -> None:
    told: list[str] = []
    listener = logging.Handler()
    listener.emit = lambda record: told.append(record.getMessage())
    optuna.logging.set_verbosity(optuna.logging.INFO)  # its own default
    logging.getLogger("optuna").addHandler(listener)
    try:
        search(plan_search(FIELDS, "DM(lam={0}, beta=2)", seeds=(0,)), tmp_path, where=CPU)
        assert told == []
        assert optuna.logging.get_verbosity() == optuna.logging.INFO
    finally:
        logging.getLogger("optuna").removeHandler(listener)


def test_both_charts_show_every_trial(tmp_path: Path) -> None:
    outcome = search(plan_search(FIELDS, "DM(lam={0, 1}, beta={2, 8})", seeds=()), tmp_path, where=CPU)
    told = page(outcome)
    shown = json.loads(re.findall(r'id="data">(.*?)</script>', told, re.S)[0])["search"]
    assert len(shown["trials"]) == 4
    assert [axis["name"] for axis in shown["axes"]] == ["lam", "beta"]
    assert shown["map"] == [0, 1]


def test_a_trial_interrupted_while_sampling(tmp_path: Path) -> None:
    plan = plan_search(FIELDS, "DM(lam=0..2, beta=0..8) | AGCE(a=0..1, q=0..1)", trials=3)
    study = open_study(plan, open_storage(sqlite_url(tmp_path / "study.db")))
    Keeper(plan, grace=10).tend(study)
    cut, whole = claim(study), claim(study)
    assert cut is not None
    assert whole is not None
    branch = cut.suggest_categorical("branch", [0, 1])
    cut.suggest_float(plan.space.key(branch, next(iter(plan.space.branches[branch].choices))), 0, 2)
    point = suggest(plan, whole)
    outcome = read_outcome(study, plan, tmp_path)
    assert [trial.point for trial in outcome.trials] == [None, point, None]
    assert len(outcome.to_csv().splitlines()) == 4


def test_final_runs_that_were_removed_are_not_counted(tmp_path: Path) -> None:
    plan = plan_search(FIELDS, GRID, seeds=(0, 1))
    whole = search(plan, tmp_path, where=CPU, beat=1)
    for left in (whole.finals[:1], ()):
        shutil.rmtree(tmp_path / whole.finals[len(left)].run)
        outcome = search(plan, tmp_path, where=CPU, beat=1)
        assert outcome.finals == left
        assert outcome.missing_seeds == [0, 1][len(left) :]
        assert "have no test set" not in page(outcome)
    words = options({**FIELDS, **CPU, "space": GRID, "seeds": 2, "runs": tmp_path})
    told = CliRunner().invoke(app, ["search", *words]).output
    assert "on all training data: the runs of seeds 0, 1 have been removed" in told


def test_the_slurm_script() -> None:
    command = ["reweigh", "search", *options({"space": "DM(lam=0..2, beta=8)", "batch_size": 64})]
    script = slurm_script(command, 8, "postgresql://me:secret@host/x")
    assert "#SBATCH --array=0-7" in script
    assert "exec srun reweigh search --space 'DM(lam=0..2, beta=8)' --batch-size 64" in script
    assert "secret" not in script
    with pytest.raises(ValueError, match="a database that all of them reach"):
        slurm_script(command, 8, None)


def test_workers_are_assigned_to_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("joined", [False, True])
def test_the_command_in_a_slurm_script_works_on_the_same_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joined: bool
) -> None:
    monkeypatch.setenv("REWEIGH_STORAGE", f"sqlite:///{tmp_path}/study.db")
    here = options({"study": "one", "runs": tmp_path / "the runs", "device": "cpu"})
    asked = [*here, *options({**FIELDS, "space": GRID, "seeds": 1, "search_seed": 3, "trusted": "test"})]
    done = CliRunner().invoke(app, ["search", *asked, "--json"])
    assert done.exit_code == 0, done.output
    monkeypatch.setattr("reweigh.lab.search.slurm.is_sqlite", lambda url: False)
    script = CliRunner().invoke(app, ["search", *(["--join", *here] if joined else asked), "--print-slurm"])
    (line,) = (line for line in script.stdout.splitlines() if line.startswith("exec srun "))
    words = shlex.split(line)[3:]
    assert "--storage" not in words, "a password stays in the environment"
    again = CliRunner().invoke(app, [*words, "--json"])
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout) == json.loads(done.stdout)


def test_initial_weights_can_be_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWEIGH_STORAGE", "postgresql+psycopg://somewhere/else")
    here = {"init_file": "weights.safetensors", "init_hash": "0123456789ab", "data_root": "there"}
    done = CliRunner().invoke(app, ["search", *options({**FIELDS, **here, "space": GRID}), "--print-slurm"])
    assert done.exit_code == 0, done.output
    assert "--init-file weights.safetensors" in done.stdout
    assert "--data-root there" in done.stdout
