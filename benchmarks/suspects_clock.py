"""The runs of `suspects.py`: carried out alone and timed, or several at a time and not."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from reweigh.lab.procedures.predictions import training_probabilities
from reweigh.lab.run import Update, execute, execute_many
from reweigh.lab.spec import Run

T = TypeVar("T")


class Stopwatch:
    """Executes runs, and notes the seconds of those that were carried out alone and in one go.

    Args:
        root: where the run folders lie; the seconds are kept in root/seconds.
        device: CPU time of this thread counts on a CPU, wall time on anything else.
        jobs: how many runs go at a time.
        until: when runs are to stop (`time.monotonic`), with a checkpoint and `reweigh.lab.run.Interrupted`.
    """

    def __init__(self, root: Path, device: str, jobs: int = 1, until: float = float("inf")) -> None:
        self.root, self.jobs, self.until = root, jobs, until
        self.clock = time.process_time if device == "cpu" else time.perf_counter

    def __call__(self, run: Run, root: Path) -> Path:
        """The folder of the run, which is carried out where it is not done."""
        begun = (root / run.folder_name()).exists()
        folder, spent = self.timed(lambda: execute(run, root, should_stop=self.is_late))
        if not begun and self.jobs == 1:
            self._note(run, spent)
        return folder

    def alone(self, run: Run) -> None:
        """Carry a run out with nothing beside it, and note what it costs, the look at its examples included.

        One that has been begun before, and whose time is therefore lost, is left as it is.
        """
        if not (self.root / run.folder_name()).exists():
            folder, spent = self.timed(lambda: execute(run, self.root, should_stop=self.is_late))
            _, looking = self.timed(lambda: training_probabilities(run, folder, held_out=True))
            self._note(run, spent + looking)

    def together(self, runs: Sequence[Run]) -> None:
        """Carry out those that are not done, where several may go at a time; where not, leave them to their turn."""
        missing = [run for run in dict.fromkeys(runs) if not (self.root / run.folder_name() / "result.json").exists()]
        if self.jobs == 1 or not missing:
            return
        start, done = time.monotonic(), 0

        def watch(number: int, update: Update) -> None:
            nonlocal done
            if update.row is not None and update.step == update.total:
                done += 1
                print(f"  {done} of {len(missing)} runs, {time.monotonic() - start:.0f} s", flush=True)

        for outcome in execute_many(missing, self.root, jobs=self.jobs, watch=watch, should_stop=self.is_late):
            if outcome.error is not None:
                raise outcome.error

    def is_late(self) -> bool:
        """Whether time is up."""
        return time.monotonic() > self.until

    def timed(self, work: Callable[[], T]) -> tuple[T, float]:
        """What comes of it, and the seconds it took."""
        start = self.clock()
        return work(), self.clock() - start

    def read(self, run: Run) -> float | None:
        """Seconds of a run, where they are known."""
        path = self._path(run)
        return float(json.loads(path.read_text())) if path.exists() else None

    def _note(self, run: Run, seconds: float) -> None:
        self._path(run).parent.mkdir(parents=True, exist_ok=True)
        self._path(run).write_text(json.dumps(seconds))

    def _path(self, run: Run) -> Path:
        return self.root / "seconds" / f"{run.folder_name()}.json"
