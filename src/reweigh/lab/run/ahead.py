"""Material gathered before its run has its turn, so that the other runs need not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType

from reweigh.lab.run.material import Material, gather
from reweigh.lab.spec import Run


class Ahead:
    """Gathers for one run after the other, in threads that end with the process: a stop does not wait for them.

    Args:
        root: where run folders lie; for a run that is done nothing is gathered.
    """

    def __init__(self, root: Path) -> None:
        self.root, self._one_at_a_time, self._is_over = Path(root), threading.Lock(), False
        self._begun: dict[str, Future[Material | None]] = {}

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_over = True

    def begin(self, run: Run) -> None:
        """Gather in a thread, unless that has begun."""
        name = run.folder_name()
        if name not in self._begun:
            self._begun[name] = Future()
            threading.Thread(target=self._gather, args=(run, self._begun[name]), daemon=True).start()

    def material(self, run: Run) -> Callable[[], Material]:
        """What waits for the run's material, or raises what was wrong with it; it is given away."""
        self.begin(run)
        begun = self._begun.pop(run.folder_name())

        def wait() -> Material:
            found = begun.result()
            return gather(run) if found is None else found

        return wait

    def _gather(self, run: Run, begun: Future[Material | None]) -> None:
        try:
            with self._one_at_a_time:
                is_done = (self.root / run.folder_name() / "result.json").exists()
                begun.set_result(None if self._is_over or is_done else gather(run))
        except Exception as error:
            begun.set_exception(error)
