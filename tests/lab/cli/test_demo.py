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
        demo, "demo_run", lambda weighting, seed: replace(full_run(weighting, seed), iterations=10, evaluate_every=10)
    )


@pytest.mark.usefixtures("short")
def test_table_and_figures(reweigh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = reweigh("demo", "--seeds", "2", "-o", tmp_path / "out")
    assert ended.code == 0
    rows = {line.split("  ")[0]: line for line in ended.stdout.splitlines()}
    for weighting in demo.WEIGHTINGS:
        assert rows[weighting].count("±") == 2
    assert "digits" in ended.stderr
    assert "lr 0.03" in ended.stderr
    assert (tmp_path / "out" / "emphasis.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "emphasis.svg").read_text().startswith("<svg")
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 6

    def missing(module: str, extra: str) -> None:
        raise MissingExtraError(f"{module} is not installed")

    monkeypatch.setattr("reweigh.lab.figures.draw_curves.require", missing)
    again = reweigh("demo", "--seeds", "2", "-o", tmp_path / "out", "--json")  # nothing is trained twice
    assert "emphasis.png not written" in again.stderr
    assert again.json["figures"] == [str(tmp_path / "out" / "emphasis.svg")]
    assert set(again.json["accuracy"]) == set(demo.WEIGHTINGS)
    assert len(again.json["accuracy"]["CCE"]["final"]) == 2


def test_runs_differ_only_in_their_weighting() -> None:
    runs = [demo.demo_run(weighting, 0).to_mapping() for weighting in demo.WEIGHTINGS]
    for run in runs:
        run.pop("weighting")
    assert runs[0] == runs[1] == runs[2]
