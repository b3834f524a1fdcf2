"""The objective of a search: execute an ordinary run, in the folder that any run with the same fields has."""

from __future__ import annotations

import time
from pathlib import Path

from reweigh.lab.record import read_result, read_rows
from reweigh.lab.record.files import LockedError
from reweigh.lab.run import Interrupted, Update, execute
from reweigh.lab.run.material import check_same_data, gather
from reweigh.lab.search.worker import Call, Objective, StoppedError
from reweigh.lab.spec import Run
from reweigh.lab.train import checkpoint

POLL = 1.0  # seconds between checks of a run that another process executes


def run_objective(root: Path, score: str) -> Objective:
    """Return an objective that executes a run below `root` and returns the column `score` of its final row.

    A finished run is only read; a diverged one is an error. An unfinished or pruned run resumes from its checkpoint;
    its earlier rows are reported first, so that pruning is the same as without the interruption.
    """

    def objective(run: Run, call: Call) -> float:
        folder = Path(root) / run.folder_name()

        def watch(update: Update) -> None:
            if update.row is not None and update.step < update.total and update.row.get(score) is not None:
                call.report(update.step, update.row[score])

        if (folder / "result.json").exists():
            check_same_data(folder, gather(run))
            checkpoint.remove(folder / "checkpoint.pt")  # which a kill after the result has left
        while not (folder / "result.json").exists():
            for row in read_rows(folder) if (folder / "rows.jsonl").exists() else ():
                if row.get(score) is not None and row["step"] < run.iterations:
                    call.report(row["step"], row[score])
            if call.should_stop():
                raise StoppedError
            try:
                execute(run, root, watch=watch, should_stop=call.should_stop)
            except Interrupted:
                raise StoppedError from None
            except LockedError:
                time.sleep(POLL)  # of an equal run, or of a worker that was taken for dead
        result = read_result(folder) or {}
        if (step := result.get("diverged")) is not None:
            raise ValueError(f"training diverged at iteration {step}")
        final = result.get("final", {}).get(score)
        if final is None and score == "validation_accuracy":
            raise ValueError(f"{folder} has no {score}")
        return float(final or 0.0)  # a final run on data without a test set has no score

    return objective
