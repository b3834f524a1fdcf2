from __future__ import annotations

import shutil
from pathlib import Path

from reweigh.lab.cli.show import curves_table, rows_table
from reweigh.lab.cli.terminal import console
from reweigh.lab.record import read_result, read_rows
from reweigh.lab.record.files import read_json


def test_a_run_is_shown_in_detail(reweigh, finished: Path) -> None:
    ended = reweigh("show", finished)
    assert ended.code == 0
    for word in ("weighting", "GCE(0.7)", "measured noise", "data hash", "torch", "given labels", "over time", "final"):
        assert word in ended.stdout
    assert "█" in ended.stdout


def test_json(reweigh, finished: Path) -> None:
    shown = reweigh("show", finished, "--json").json
    assert shown["rows"] == read_rows(finished)
    assert shown["header"] == read_json(finished / "run.json")
    assert shown["result"] == read_result(finished)


def test_lost_rows_of_a_finished_run_are_noticed(reweigh, finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / finished.name
    shutil.copytree(finished, folder)
    (folder / "rows.jsonl").write_text("")
    problem = f"{folder / 'rows.jsonl'}: has no rows, but the result is of iteration 40; restore the file"
    for command in (["show", folder], ["report", folder, "-o", tmp_path / "report.html"], ["suspects", folder]):
        ended = reweigh(*command)
        assert (ended.code, problem in ended.stderr) == (3, True), command
    listed = reweigh("runs", tmp_path / "runs", "--json").json["runs"]
    assert [(run["state"], run["problem"]) for run in listed] == [("broken", problem)]


def test_an_unfinished_run_shows_how_to_resume(reweigh, finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / finished.name
    shutil.copytree(finished, folder)
    (folder / "result.json").unlink()
    assert f"{folder / 'result.json'}: is missing, but the run was finished" in reweigh("show", folder).stderr
    shutil.rmtree(folder / "model")
    assert f"to resume: reweigh resume {folder}" in reweigh("show", folder).stdout
    (folder / "rows.jsonl").unlink()
    assert reweigh("show", folder).code == 0


def test_what_is_not_a_run(reweigh, tmp_path: Path) -> None:
    assert reweigh("show", tmp_path).code == 3
    (tmp_path / "run.json").write_text("[]")
    ended = reweigh("show", tmp_path)
    assert ended.code == 3
    assert "run.json: expected a JSON object" in ended.stderr


def printed(drawn, capsys) -> list[str]:
    console().print(drawn)
    return capsys.readouterr().out.splitlines()


def test_a_narrow_terminal_shows_fewer_columns(capsys) -> None:
    rows = [{"step": i, "loss": 1 / i, "test_accuracy": 0.5, "lr": 0.1} for i in range(1, 101)]
    wide = printed(rows_table(rows, most=3, width=200), capsys)
    assert wide[1].split() == ["step", "loss", "accuracy", "lr"]
    assert [line.split()[0] for line in wide[2:]] == ["1", "51", "100"]
    narrow = printed(rows_table(rows, most=0, width=16), capsys)
    assert narrow[0].split() == ["step", "loss"]
    assert len(narrow) == 101


def test_missing_values_leave_gaps(capsys) -> None:
    rows = [{"step": i, "loss": None if i == 2 else i, "test_accuracy": None} for i in range(4)]
    (_, line) = printed(curves_table(rows), capsys)
    assert "▁▃ █" in line
    assert "test accuracy" not in line
