"""A run whose record lacks rows from before its checkpoint is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from reweigh.errors import DataError
from reweigh.lab.record import read_rows
from reweigh.lab.run import Interrupted, execute
from reweigh.lab.spec import Run

RUN = Run(
    data="digits",
    net="mlp-8",
    weighting="CCE",
    iterations=40,
    batch_size=50,
    evaluate_every=10,
    record_p=True,
    record_margins=True,
    device="cpu",
)


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    done: list[int] = []
    with pytest.raises(Interrupted):
        execute(RUN, tmp_path, watch=lambda update: done.append(update.step), should_stop=lambda: 25 in done)
    return tmp_path / RUN.folder_name()


def recorded(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("rows.jsonl", "p.f16", "margins.bin", "checkpoint.pt")}


def empty_and_refused(file: Path) -> bytes:
    content = file.read_bytes()
    file.write_bytes(b"")
    before = recorded(file.parent)
    with pytest.raises(DataError, match=rf"{file.name}: holds 0 records, expected 2; there is none of iteration 10"):
        execute(RUN, file.parent.parent)
    assert recorded(file.parent) == before, "a refusal cuts nothing"
    return content


@pytest.mark.parametrize("name", ["rows.jsonl", "p.f16", "margins.bin"])
def test_a_run_that_lost_a_file_resumes_only_after_it_is_restored(stopped: Path, name: str) -> None:
    content = empty_and_refused(stopped / name)
    (stopped / name).write_bytes(content)
    assert len(read_rows(execute(RUN, stopped.parent))) == 4
