from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reweigh.errors import MissingExtraError
from reweigh.lab.cli import demo


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    full_run = demo.demo_run
    monkeypatch.setattr(
        demo, "demo_run", lambda name, seed: replace(full_run(name, seed), iterations=40, evaluate_every=20)
    )


@pytest.mark.usefixtures("short")
def test_table_suspects_and_pictures(reweigh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = reweigh("demo", "--seeds", "2", "-o", tmp_path / "out")
    assert ended.code == 0
    rows = {line.split(" ")[0]: line for line in ended.stdout.splitlines()}
    for name in demo.OBJECTIVES:
        assert rows[name].count("±") == 2
    assert "digits" in ended.stderr
    assert "of 1,200 training labels are wrong; Auto marks" in ended.stdout
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert "Test accuracy" in (tmp_path / "out" / "report.html").read_text()
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 4

    def missing(module: str, extra: str) -> None:
        raise MissingExtraError(f"{module} is not installed")

    monkeypatch.setattr("reweigh.lab.figures.draw.require", missing)
    again = reweigh("demo", "--seeds", "2", "-o", tmp_path / "out", "--json")  # nothing is trained twice
    assert "demo.png not written" in again.stderr
    assert again.json["files"] == [str(tmp_path / "out" / name) for name in ("report.html", "suspects.html")]
    assert set(again.json["accuracy"]) == set(demo.OBJECTIVES)
    assert len(again.json["accuracy"]["CCE"]["final"]) == 2
    assert 0 <= again.json["suspects"]["precision"] <= 1


def test_runs_differ_only_in_their_loss() -> None:
    plain, auto = (demo.demo_run(name, 0).to_mapping() for name in demo.OBJECTIVES)
    assert (plain.pop("weighting"), auto.pop("method")) == ("CCE", "Auto")
    assert plain == auto
