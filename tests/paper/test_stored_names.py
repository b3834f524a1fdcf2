"""Runs of committed results have the names, and so the hashes, that they were stored under."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import paper
from reweigh.lab.spec import Run

RESULTS = sorted((Path(paper.__file__).parent / "results").glob("*.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_stored_runs_keep_their_names(path: Path) -> None:
    content = json.loads(path.read_text())
    findings = [*(entry["finding"] for entry in content["entries"]), *content["trials"]]
    for finding in findings:
        run = Run.from_mapping(finding["header"]["run"])
        if " " not in finding["name"]:  # "warm_start() NAME" is a procedure, whose run is another one
            assert run.folder_name() == finding["name"]
