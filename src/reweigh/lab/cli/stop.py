"""Ctrl-C and SIGTERM as a question that the training loop asks between iterations."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any


class Stop:
    """While entered, `stop()` says whether Ctrl-C or SIGTERM has come; a second Ctrl-C interrupts at once.

    `signal` is the first that came, or None. Outside the main thread nothing is caught.

    >>> with Stop() as stop:
    ...     before = stop()
    ...     signal.raise_signal(signal.SIGTERM)
    ...     before, stop(), stop.signal == signal.SIGTERM
    (False, True, True)
    """

    _CAUGHT = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        return self.signal is not None

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in self._CAUGHT}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal == signal.SIGINT == number:
            raise KeyboardInterrupt
        if self.signal is None and number == signal.SIGINT:
            with suppress(OSError):  # past sys.stderr, which may be in the middle of a line: it can't be entered twice
                os.write(2, b"\nstopping after this iteration; Ctrl-C again stops at once\n")
        self.signal = self.signal or number
