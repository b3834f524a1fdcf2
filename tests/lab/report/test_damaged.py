"""Records with well-formed JSON of wrong content."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from reweigh.lab.report import collect, report_page

WRONG: tuple[Any, ...] = (3, "many", [], {}, None, [{}], [0.5] * 3)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every nested value; of lists only that of the first item."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in items:
        yield (*at, key)
        yield from places(item, (*at, key))


@pytest.mark.parametrize("file", ["run.json", "rows.jsonl", "result.json"])
def test_no_damaged_run_ends_a_report(tmp_path: Path, make_run: Callable[..., Path], file: str) -> None:
    """Two seeds: their numbers are averaged."""
    root = tmp_path / "runs"
    path = make_run(root, evaluations=2) / file
    make_run(root, evaluations=2, seed=1)
    first, *others = path.read_text().splitlines() if file == "rows.jsonl" else [path.read_text()]
    content, left_out = json.loads(first), 0
    for place in places(content):
        for wrong in WRONG:
            changed = inner = deepcopy(content)
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = wrong
            path.write_text("\n".join([json.dumps(changed), *others, ""]))
            collected = collect([root])
            assert len(collected.runs) + len(collected.problems) == 2
            assert all(problem.startswith(str(path.parent)) for problem in collected.problems)
            report_page(collected)
            left_out += len(collected.problems)
    assert left_out > len(WRONG)
    shutil.rmtree(root)


def test_a_run_of_other_classes_than_it_says_is_left_out(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    rows = make_run(tmp_path, evaluations=2) / "rows.jsonl"
    make_run(tmp_path, evaluations=2, seed=1)
    changed = [json.loads(line) | {"p_by_class": [0.5] * 3} for line in rows.read_text().splitlines()]
    rows.write_text("".join(f"{json.dumps(row)}\n" for row in changed))
    collected = collect([tmp_path])
    assert collected.problems == [f"{rows}: p_by_class has 3 numbers; there are 4 classes"]
    report_page(collected)
