"""The committed results, whose metrics and columns bear names of earlier versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from paper.experiment import METRICS
from paper.findings import read_results
from reweigh.lab.record.rows import RENAMED

RESULTS = sorted((Path(__file__).parents[2] / "paper" / "results").glob("*.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_they_load_with_present_names(path: Path) -> None:
    saved = read_results(path)
    assert saved.experiment.name == path.stem
    assert set(saved.experiment.metrics) <= METRICS.keys()
    for finding in saved.store.values():
        assert not RENAMED.keys() & {*finding.metrics, *finding.columns}
