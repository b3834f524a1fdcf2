"""A run's folder: written, read, truncated anywhere, resumed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reweigh.errors import DataError
from reweigh.lab.record import (
    Header,
    Record,
    RecordError,
    environment,
    read_header,
    read_margins,
    read_p,
    read_result,
    read_rows,
    read_run,
    summarise,
)
from reweigh.lab.record.archive import pack
from reweigh.lab.record.header import _commit
from reweigh.lab.record.posteriors import FILE, read_posteriors, write_posteriors

MakeRun = Callable[..., Path]
ENVIRONMENT = {"torch": "2"}


def test_round_trip(tmp_path: Path, make_run: MakeRun, header: Header, rows: list[dict[str, Any]]) -> None:
    folder = make_run(tmp_path / "a")
    assert read_header(folder) == replace(header, environments=(ENVIRONMENT,))
    assert read_rows(folder) == rows
    assert read_result(folder) == {"final": {"accuracy": 0.3}, "best": {"accuracy": 0.3}}
    steps, p = read_p(folder)
    assert steps.tolist() == [10, 20, 30]
    assert p.dtype == np.float16
    assert p.shape == (5, 3)
    assert np.allclose(p, [[0.1, 0.2, 0.3]] * 5, atol=1e-3)


def test_a_finished_run_is_never_repeated(tmp_path: Path, make_run: MakeRun, header: Header) -> None:
    folder = make_run(tmp_path / "a")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(RecordError, match="already has a result"):
        Record(folder, header, ENVIRONMENT)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_rewinding_removes_later_rows(tmp_path: Path, make_run: MakeRun, header: Header) -> None:
    folder = make_run(tmp_path / "a", done=False)
    with Record(folder, header, ENVIRONMENT) as record:
        assert record.last_step == 30
        with pytest.raises(ValueError, match="step 30 follows step 30"):
            record.append({"step": 30})
        record.rewind(25)
        assert record.last_step == 20
        record.append({"step": 30, "accuracy": 0.9}, np.ones(5))
    assert [row["step"] for row in read_rows(folder)] == [10, 20, 30]
    assert read_rows(folder)[-1]["accuracy"] == 0.9
    assert read_p(folder).p[:, -1].tolist() == [1.0] * 5
    with Record(folder, header, ENVIRONMENT) as record:
        record.rewind(-1)
    assert read_rows(folder) == []
    assert read_p(folder).p.shape == (5, 0)


def test_rewinding_to_missing_rows_is_refused(tmp_path: Path, make_run: MakeRun, header: Header) -> None:
    folder = make_run(tmp_path / "a", done=False)
    (folder / "rows.jsonl").write_bytes((folder / "rows.jsonl").read_bytes()[:-1])  # an editor took the last line's end
    before = {name: (folder / name).read_bytes() for name in ("rows.jsonl", "p.f16")}
    with Record(folder, header, ENVIRONMENT) as record:
        with pytest.raises(DataError, match=r"rows\.jsonl: holds 2 records, expected 3; there is none of iteration 30"):
            record.rewind(30, due=[10, 20, 30])
        assert all((folder / name).read_bytes() == content for name, content in before.items())
        record.rewind(25, due=[10, 20])
        assert record.last_step == 20
    assert read_p(folder).steps.tolist() == [10, 20]


def test_every_incomplete_end_is_ignored_and_removed(
    tmp_path: Path, make_run: MakeRun, header: Header, rows: list[dict[str, Any]]
) -> None:
    whole = make_run(tmp_path / "whole", done=False)
    content = (whole / "rows.jsonl").read_bytes()
    ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
    for size in range(len(content) + 1):
        folder = tmp_path / "torn"
        shutil.copytree(whole, folder)
        os.truncate(folder / "rows.jsonl", size)
        kept = sum(end <= size for end in ends)
        assert read_rows(folder) == rows[:kept]
        with Record(folder, header, ENVIRONMENT) as record:
            assert record.last_step == (rows[kept - 1]["step"] if kept else -1)
            record.append({"step": 99}, np.zeros(5))
        assert read_rows(folder) == [*rows[:kept], {"step": 99}]
        # p of an evaluation whose row is lost goes with it
        assert read_p(folder).steps.tolist() == [*(row["step"] for row in rows[:kept]), 99]
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "tail",
    [b"\0\0\0\n", b'{"step": 5}\n', b"{}\n", b"[1]\n", b'{"step": "x"}\n', b"\xff\n", b"[" * 100_000 + b"\n"],
    ids=["zeros", "step falls", "no step", "list", "no number", "no UTF-8", "too deep"],
)
def test_a_damaged_last_line_counts_as_incomplete(tmp_path: Path, make_run: MakeRun, tail: bytes) -> None:
    folder = make_run(tmp_path / "a", done=False)
    with (folder / "rows.jsonl").open("ab") as file:
        file.write(tail)
    assert [row["step"] for row in read_rows(folder)] == [10, 20, 30]


def test_a_damaged_line_in_the_middle_is_refused_by_number(tmp_path: Path, make_run: MakeRun, header: Header) -> None:
    folder = make_run(tmp_path / "a", done=False)
    lines = (folder / "rows.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "rows.jsonl").write_bytes(lines[0] + b"oops\n" + lines[1])
    with pytest.raises(DataError, match=r"rows\.jsonl, line 2: expected .* not b'oops'"):
        read_rows(folder)
    with pytest.raises(DataError, match="line 2"):
        Record(folder, header, ENVIRONMENT)
    assert summarise(folder).state == "broken"


def test_incomplete_records_of_p_are_ignored(tmp_path: Path, make_run: MakeRun) -> None:
    folder = make_run(tmp_path / "a", done=False)
    content = (folder / "p.f16").read_bytes()
    assert len(content) == 3 * (8 + 2 * 5)
    for size in range(len(content)):
        (folder / "p.f16").write_bytes(content[:size])
        assert len(read_p(folder).steps) == size // 18


def test_zeros_after_a_power_cut_are_ignored(tmp_path: Path, make_run: MakeRun, header: Header) -> None:
    folder = make_run(tmp_path / "a", done=False)
    content = (folder / "p.f16").read_bytes()
    (folder / "p.f16").write_bytes(content + bytes(18))
    assert len(read_p(folder).steps) == 3
    (folder / "result.json.1-2.part").write_text("half of a")
    with Record(folder, header, ENVIRONMENT) as record:
        record.rewind(30)
        assert (folder / "p.f16").read_bytes() == content
        assert not list(folder.glob("*.part"))


def test_p_of_another_length_is_refused(tmp_path: Path, make_run: MakeRun, header: Header) -> None:
    folder = make_run(tmp_path / "a", done=False)
    with Record(folder, header, ENVIRONMENT) as record:
        with pytest.raises(ValueError, match=r"p has shape \(4,\); expected \(5,\)"):
            record.append({"step": 40}, np.zeros(4))
        with pytest.raises(ValueError, match="between 0 and 1"):
            record.append({"step": 40}, np.full(5, 1.5))
        record.append({"step": 40}, np.full(5, np.nan))
    assert np.isnan(read_p(folder).p[:, -1]).all()
    content = (folder / "p.f16").read_bytes()
    (folder / "p.f16").write_bytes(content + content)
    with pytest.raises(DataError, match=r"p\.f16: the steps do not increase"):
        read_p(folder)


@pytest.mark.parametrize("step", [None, "3", 1.5, True])
def test_rows_need_steps(tmp_path: Path, header: Header, step: Any) -> None:
    with Record(tmp_path / "a", header, ENVIRONMENT) as record, pytest.raises(ValueError, match="must be an integer"):
        record.append({"step": step})


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"data_hash": "f" * 64}, "data_hash"),
        ({"label_hash": "f" * 64}, "label_hash"),
        ({"examples": 6}, "examples"),
    ],
)
def test_a_record_of_another_run_is_refused(
    tmp_path: Path, make_run: MakeRun, header: Header, change: dict[str, Any], name: str
) -> None:
    folder = make_run(tmp_path / "a", done=False)
    with pytest.raises(DataError, match=rf"run\.json: {name} is .* use another folder of runs"):
        Record(folder, replace(header, **change), ENVIRONMENT)
    with pytest.raises(DataError, match=r"run\.json: run is"):
        Record(folder, replace(header, run=replace(header.run, seed=1)), ENVIRONMENT)
    Record(folder, replace(header, run=replace(header.run, device="cuda")), ENVIRONMENT).close()


def test_all_environments_are_kept(tmp_path: Path, make_run: MakeRun, header: Header) -> None:
    folder = make_run(tmp_path / "a", done=False)
    before = (folder / "run.json").read_bytes()
    Record(folder, header, ENVIRONMENT).close()
    assert (folder / "run.json").read_bytes() == before
    Record(folder, header, {"torch": "3", "sizes": (1, 2)}).close()
    Record(folder, header, {"torch": "3", "sizes": [1, 2]}).close()
    assert read_header(folder).environments == (ENVIRONMENT, {"torch": "3", "sizes": [1, 2]})


def test_the_environment_has_the_versions() -> None:
    found = environment()
    decisive = {"reweigh", "commit", "python", "torch", "numpy", "threads", "deterministic", "device"}
    assert decisive <= found.keys()
    assert json.loads(json.dumps(found)) == found


def test_one_writer_at_a_time(tmp_path: Path, header: Header) -> None:
    with Record(tmp_path / "a", header, ENVIRONMENT), pytest.raises(RecordError, match="being written"):
        Record(tmp_path / "a", header, ENVIRONMENT)
    with pytest.raises(DataError):  # a refusal gives the lock back
        Record(tmp_path / "a", replace(header, examples=1), ENVIRONMENT)
    Record(tmp_path / "a", header, ENVIRONMENT).close()


def test_a_full_disk_loses_nothing_written(
    tmp_path: Path, make_run: MakeRun, header: Header, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path / "a", done=False)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Record(folder, header, ENVIRONMENT) as record:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(RecordError, match=r"p\.f16: No space left on device"):
                record.append({"step": 40}, np.zeros(5))
            with pytest.raises(RecordError, match=r"rows\.jsonl: No space left on device"):
                record.append({"step": 40})
            with pytest.raises(RecordError, match=r"result\.json: No space left on device"):
                record.finish({})
        assert read_rows(folder) == rows
        assert summarise(folder).state == "resumable"
        record.append({"step": 40}, np.zeros(5))
    assert read_p(folder).steps.tolist() == [10, 20, 30, 40]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not JSON"),
        ('{"format": 99}', "format is 99; this version reads 1"),
        ('{"format": 1}', "run is missing"),
    ],
)
def test_damaged_headers_are_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(DataError, match=message):
        read_header(tmp_path)


def test_a_header_that_was_edited_is_refused(tmp_path: Path, make_run: MakeRun) -> None:
    folder = make_run(tmp_path / "a")
    content = json.loads((folder / "run.json").read_text())
    content["run"]["seed"] = 7
    (folder / "run.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="hash is"):
        read_header(folder)
    content["run"]["sed"] = 7
    (folder / "run.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="did you mean 'seed'"):
        read_header(folder)


KILLED = """
import sys
from pathlib import Path
import numpy as np
from reweigh.lab.record import Header, Record
from reweigh.lab.spec import Run
header = Header(Run(data="digits", net="linear", weighting="DM(0.5, 8)"), "d" * 64, "e" * 64, 5)
with Record(Path(sys.argv[1]), header, {}) as record:
    record.rewind(int(sys.argv[2]))
    print("ready", flush=True)
    for step in range(record.last_step + 1, 100_000):
        record.append({"step": step, "p_by_class": [0.5] * 40}, np.zeros(5))
"""


def test_kill_at_any_moment_neither_loses_nor_repeats_rows(tmp_path: Path) -> None:
    folder, count = tmp_path / "a", 0
    for i in range(4):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder), str(count)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        while len(read_rows(folder)) < count + 3 + i:
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        steps = [row["step"] for row in read_rows(folder)]
        assert steps == list(range(len(steps)))
        assert len(read_p(folder).steps) - len(steps) in (0, 1)
        count = len(steps) - 2  # as if the checkpoint were two rows older


def test_the_commit_is_read_without_writing_to_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "a")
    code = tmp_path / "header.py"
    code.write_text("")
    for command in (["init", "-q"], ["add", "header.py"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    os.utime(code, (1, 1))  # which `git describe --dirty` would note in the index, under a lock
    index = tmp_path / ".git" / "index"
    before = index.read_bytes()
    commit = _commit(tmp_path)
    assert commit is not None
    assert len(commit) == 40
    assert index.read_bytes() == before
    code.write_text("changed")
    assert _commit(tmp_path) == f"{commit}-dirty"


FINISHED = {"final": {"step": 30, "accuracy": 0.3}, "best": None}


@pytest.fixture
def complete(tmp_path: Path, header: Header) -> Path:
    """A finished run that recorded p and margins."""
    with Record(tmp_path / "a", header, ENVIRONMENT) as record:
        for step in (10, 20, 30):
            record.append({"step": step, "accuracy": step / 100}, np.full(5, 0.5), (np.full(5, 0.25), np.arange(5)))
        write_posteriors(tmp_path / "a", *torch.full((3, 5, 2), 0.5))
        record.finish(FINISHED)
    return tmp_path / "a"


def read_all(folder: Path) -> tuple[object, ...]:
    return read_run(folder), read_p(folder), read_margins(folder), read_posteriors(folder, 5, 2)


@pytest.mark.parametrize("name", [FILE, "run.json", "rows.jsonl", "p.f16", "margins.bin", "result.json"])
def test_every_damage_to_a_finished_run_is_named(complete: Path, name: str) -> None:
    content = (complete / name).read_bytes()
    for place in range(len(content)):
        (complete / name).write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        with pytest.raises(DataError, match=name):
            read_all(complete)
        (complete / name).write_bytes(content[:place])
        with pytest.raises(DataError, match=name):
            read_all(complete)
    (complete / name).write_bytes(content)
    read_all(complete)
    if name != "result.json":  # without a result the run is not finished
        (complete / name).unlink()
        with pytest.raises(DataError, match=name):
            read_all(complete)


@pytest.mark.parametrize("rows", [None, "", '{"step": 10}\n{"step": 20}\n'])
def test_lost_rows_of_a_run_without_digests_are_noticed(complete: Path, rows: str | None) -> None:
    (complete / "result.json").write_text(json.dumps(FINISHED))  # as earlier versions wrote it
    assert summarise(complete).state == "done"
    (complete / "rows.jsonl").unlink()
    if rows is not None:
        (complete / "rows.jsonl").write_text(rows)
    summary = summarise(complete)
    assert summary.state == "broken"
    ends = "ends at iteration 20" if rows else "has no rows"
    assert summary.problem == f"{complete / 'rows.jsonl'}: {ends}, but the result is of iteration 30; restore the file"


@pytest.mark.parametrize("name", ["rows.jsonl", "p.f16", "margins.bin"])
def test_a_damaged_record_is_not_resumed(complete: Path, header: Header, name: str) -> None:
    (complete / "result.json").unlink()
    with Record(complete, header, ENVIRONMENT) as record:
        record.rewind(20)
        digests = record.digests
        record.append({"step": 30, "accuracy": 0.5}, np.ones(5), (np.zeros(5), np.arange(5)))
    path = complete / name
    content = path.read_bytes()
    damaged = content.replace(b"0.1", b"0.7", 1) if name == "rows.jsonl" else content[:9] + b"\x77" + content[10:]
    path.write_bytes(damaged)
    with Record(complete, header, ENVIRONMENT) as record:
        with pytest.raises(
            DataError, match=rf"{name}: damaged; its content does not match the digest in the checkpoint"
        ):
            record.rewind(20, [10, 20], digests)
        assert path.read_bytes() == damaged, "nothing is removed"
    path.write_bytes(content)
    with Record(complete, header, ENVIRONMENT) as record:
        record.rewind(20, [10, 20], digests)
        assert record.digests == digests


@pytest.mark.parametrize("name", ["run.json", "rows.jsonl", "p.f16", "result.json"])
def test_a_file_larger_than_any_is_refused_at_once(tmp_path: Path, make_run: MakeRun, name: str) -> None:
    folder = make_run(tmp_path / "a")
    os.truncate(folder / name, 2**37)
    with pytest.raises(DataError, match=f"{name}: cannot be read .larger than"):
        read_p(folder) if name == "p.f16" else read_run(folder)
    with pytest.raises(DataError, match=f"{name}: .*larger than"):
        pack([folder], tmp_path / "a.tar.gz")
