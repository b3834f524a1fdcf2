"""Folders of runs may be passed as strings."""

from __future__ import annotations

from pathlib import Path

from reweigh.lab.record import list_runs, read_margins, read_p, read_result, read_rows, summarise
from reweigh.lab.run import execute
from reweigh.lab.spec import Run


def test_a_folder_is_a_path_or_a_string(tmp_path: Path) -> None:
    run = Run(data="digits", net="linear", weighting="CCE", iterations=1, record_p=True, device="cpu")
    folder = execute(run, tmp_path)
    name = str(folder)
    assert list_runs(str(tmp_path)) == list_runs(tmp_path) == [summarise(name)]
    assert (read_rows(name), read_result(name)) == (read_rows(folder), read_result(folder))
    assert (read_p(name).steps == read_p(folder).steps).all()
    assert not len(read_margins(name).steps)
    assert list_runs(str(tmp_path / "none")) == []
