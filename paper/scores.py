"""Runs on MARS scored as what they are for: every query ranks all tracklets, by the official rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from paper.finding import RETRIEVAL
from reweigh.lab.data import registry
from reweigh.lab.data.tracklets import index_of
from reweigh.lab.record import read_result
from reweigh.lab.record.files import write_json
from reweigh.lab.retrieval.retrieve import retrieve
from reweigh.lab.run import Update
from reweigh.lab.run.execute import folder_of
from reweigh.lab.run.machine import device_of
from reweigh.lab.spec import Run


def score_runs(
    runs: Sequence[Run],
    root: Path,
    fail: Callable[[Run, Exception], None],
    tell: Callable[[int, int, Run, Update], None] = lambda number, count, run, update: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Write the scores of finished runs beside their results, and say whether it came to its end; what is there stays.

    A run that diverged has no features to rank by, and goes without, as does one that fails; `fail` is told why.
    Features are kept as they come, so that what was cut short goes on; `tell` counts their frames.
    """
    for number, run in enumerate(runs):
        folder = folder_of(run, root)
        result = read_result(folder)
        if result is not None and result.get("diverged") is None and not (folder / RETRIEVAL).exists():
            if should_stop():
                return False
            watch = _watching(number, len(runs), run, tell)
            try:
                write_json(folder / RETRIEVAL, score_run(run, folder, watch))
            except Exception as error:  # whatever it was, the others go on
                fail(run, error)
    return True


def _watching(
    number: int, count: int, run: Run, tell: Callable[[int, int, Run, Update], None]
) -> Callable[[int, int], None]:
    return lambda done, total: tell(number, count, run, Update(done, total))


def score_run(
    run: Run, folder: Path, progress: Callable[[int, int], None] = lambda done, total: None
) -> dict[str, float]:
    """mAP and CMC-1 of a run's final model; `progress` is told of (frames done, frames)."""
    index = index_of(run.data, registry.folder_of(run.data, run.data_root))
    found = retrieve(
        folder / "model",
        index,
        "snippets" if run.net.startswith("cae-") else "mean",
        cache=folder / "features",
        workers=run.workers,
        device=device_of(run),
        progress=progress,
    )
    return {"mAP": found.scores.mean_ap, "CMC-1": float(found.scores.cmc[0])}
