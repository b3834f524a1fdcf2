"""Listing a folder of runs, some of which are damaged."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reweigh.lab.record import Header, list_runs
from reweigh.lab.record.files import read_json, write_json

MakeRun = Callable[..., Path]


def test_listing(tmp_path: Path, make_run: MakeRun, header: Header) -> None:
    assert list_runs(tmp_path / "nowhere") == []
    make_run(tmp_path / "b")
    make_run(tmp_path / "a", done=False)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "run.json").write_text("{")
    (tmp_path / "d").mkdir()
    (tmp_path / ".unpack-x").mkdir()
    (tmp_path / "note.txt").write_text("")
    found = list_runs(tmp_path)
    assert [(item.folder.name, item.state, item.step) for item in found] == [
        ("a", "resumable", 30),
        ("b", "done", 30),
        ("c", "broken", -1),
    ]
    assert found[0].run == header.run
    assert found[1].result == {"final": {"accuracy": 0.3}, "best": {"accuracy": 0.3}}
    assert found[2].problem is not None
    assert "run.json" in found[2].problem


def test_a_run_with_unknown_arguments_is_broken(tmp_path: Path, make_run: MakeRun) -> None:
    """As one of another version may have."""
    path = make_run(tmp_path / "a") / "run.json"
    make_run(tmp_path / "b")
    content = read_json(path)
    content["run"]["weighting"] = "DM(0.5, b=8)"
    write_json(path, content)
    found = list_runs(tmp_path)
    assert [item.state for item in found] == ["broken", "done"]
    assert found[0].problem == f"{path}: DM(0.5, b=8): DM has no argument 'b'; there are lam, beta"


@pytest.mark.parametrize(
    ("file", "change", "problem"),
    [
        ("run.json", {"examples": "many"}, "examples is 'many'; expected an integer"),
        ("run.json", {"examples": 1e300}, "examples is 1e+300; expected an integer"),
        ("run.json", {"run": ["data"]}, "run is ['data']; expected a JSON object"),
        ("run.json", {"data_hash": None}, "data_hash is None; expected a string"),
        ("run.json", {"details": {"noise": {"kind": "a", "rate": None}}}, "details.noise.measured is missing"),
        ("run.json", {"details": {"class_names": ["cat", 3]}}, "details.class_names[1] is 3; expected a string"),
        ("run.json", {"environments": [3]}, "environments[0] is 3; expected a JSON object"),
        ("result.json", {"final": 3}, "final is 3; expected a JSON object"),
        ("result.json", {"best": []}, "best is []; expected a JSON object or null"),
        ("result.json", {"final": {"accuracy": "0.3"}}, "final.accuracy is '0.3'; expected a number or null"),
        ("result.json", {"diverged": True}, "diverged is True; expected an integer or null"),
        ("result.json", {"reliability": [{"confidence": 0.5}]}, "reliability[0].accuracy is missing"),
        ("rows.jsonl", {"accuracy": "many"}, "accuracy is 'many'; expected a number or null"),
        ("rows.jsonl", {"accuracy": [0.5]}, "accuracy is [0.5]; expected a number or null"),
        ("rows.jsonl", {"p_by_class": 3}, "p_by_class is 3; expected a list"),
        ("rows.jsonl", {"p_histogram": [0.5, {}]}, "p_histogram[1] is {}; expected a number or null"),
        ("rows.jsonl", {"step": True}, "step is True; expected an integer"),
    ],
)
def test_a_run_with_a_value_of_the_wrong_type_is_broken(
    tmp_path: Path, make_run: MakeRun, file: str, change: dict[str, Any], problem: str
) -> None:
    path = make_run(tmp_path / "a") / file
    make_run(tmp_path / "b")
    first, *others = path.read_text().splitlines() if file == "rows.jsonl" else [path.read_text()]
    path.write_text("\n".join([json.dumps(json.loads(first) | change), *others, ""]))
    found = list_runs(tmp_path)
    assert [item.state for item in found] == ["broken", "done"]
    assert found[0].problem == f"{path}{', line 1' if file == 'rows.jsonl' else ''}: {problem}"


def test_a_header_in_the_place_of_a_result_is_refused(tmp_path: Path, make_run: MakeRun) -> None:
    folder = make_run(tmp_path / "a")
    (folder / "result.json").write_bytes((folder / "run.json").read_bytes())
    (found,) = list_runs(tmp_path)
    assert (found.state, found.problem) == ("broken", f"{folder / 'result.json'}: final is missing")


def test_lists_of_a_column_have_one_length(tmp_path: Path, make_run: MakeRun) -> None:
    path = make_run(tmp_path / "a") / "rows.jsonl"
    path.write_text("".join(f'{{"step": {step}, "p_histogram": {[0.5] * step}}}\n' for step in (1, 2)))
    (found,) = list_runs(tmp_path)
    assert found.problem == f"{path}, line 2: p_histogram has 2 numbers; expected 1"


def test_an_unreadable_folder_is_broken(tmp_path: Path, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for chmod 000, which does not keep root out."""
    closed = make_run(tmp_path / "a")
    make_run(tmp_path / "b")

    def guarded(call: Callable[..., object]) -> Callable[..., object]:
        def checked(path: Path, *args: object, **options: object) -> object:
            if path.parent == closed:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return call(path, *args, **options)

        return checked

    monkeypatch.setattr(Path, "stat", guarded(Path.stat))
    monkeypatch.setattr(Path, "read_bytes", guarded(Path.read_bytes))
    found = list_runs(tmp_path)
    assert [(item.folder.name, item.state) for item in found] == [("a", "broken"), ("b", "done")]
    assert found[0].problem == f"{closed / 'run.json'}: cannot be read (Permission denied)"
