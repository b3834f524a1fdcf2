"""Read the hostile corpus of tests/lab/data: archives, pickles, arrays, tables and images that lie about themselves."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from attack.processes import fork

CORPUS = Path(__file__).parent.parent / "lab" / "data"


def hostile(rng: random.Random, scratch: Path) -> Iterator[tuple[str, str]]:
    """Yield (outcome, details) of each file, once; `refused` is the good outcome: its test has passed."""
    folder = scratch / "hostile"
    folder.mkdir()

    def work() -> None:
        import pytest

        class Listener:
            def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
                if report.when == "call" or report.failed:
                    with Path(folder / "outcomes.jsonl").open("a") as file:
                        file.write(json.dumps(["wrong" if report.failed else "refused", report.nodeid]) + "\n")

        tests = [str(CORPUS / "hostile"), str(CORPUS / "source")]
        options = ["-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={CORPUS.parents[2]}"]
        sys.exit(pytest.main([*tests, *options, "-c", str(CORPUS.parents[2] / "pyproject.toml")], plugins=[Listener()]))

    ended = fork(work, folder, seconds=900)
    outcomes = (folder / "outcomes.jsonl").read_text().splitlines() if (folder / "outcomes.jsonl").exists() else []
    yield from (tuple(json.loads(line)) for line in outcomes)
    if ended.hung or not outcomes:
        yield "hung" if ended.hung else "crashed", ended.output[-600:]
