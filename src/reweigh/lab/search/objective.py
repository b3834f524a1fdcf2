"""A trial is an ordinary run: its folder is where any other run of the same fields would lie."""

from __future__ import annotations

import time
from pathlib import Path

from reweigh.lab.record import RecordError, read_result, read_rows
from reweigh.lab.record.files import LockedError
from reweigh.lab.run import Interrupted, Update, execute
from reweigh.lab.run.material import check_same_data, gather
from reweigh.lab.search.worker import Call, Objective, StoppedError
from reweigh.lab.spec import Run

PAUSE = 1.0  # seconds between two looks at a run that another process is working on


def by_execution(root: Path, score: str) -> Objective:
    """The objective that carries a run out below `root` and returns a column of its final row.

    A run that is done is only read; one that diverged is an error. One that was begun, pruned or cut short goes on from
    its checkpoint, and its earlier rows are reported first, so that it is judged as if it had never stopped.
    """

    def objective(run: Run, call: Call) -> float:
        folder = Path(root) / run.folder_name()

        def watch(update: Update) -> None:
            if update.row is not None and update.step < update.total and update.row.get(score) is not None:
                call.report(update.step, update.row[score])

        if (folder / "result.json").exists():
            check_same_data(folder, gather(run))
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
                time.sleep(PAUSE)  # an equal run, or this one in the hands of a worker that was taken for dead
            except RecordError:
                if not (folder / "result.json").exists():  # which another worker may just have written
                    raise
        result = read_result(folder) or {}
        if (step := result.get("diverged")) is not None:
            raise ValueError(f"training diverged at iteration {step}")
        final = result.get("final", {}).get(score)
        if final is None and score == "validation_accuracy":
            raise ValueError(f"{folder} has no {score}")
        return float(final or 0.0)  # data without a test part have nothing to judge a final run by

    return objective
