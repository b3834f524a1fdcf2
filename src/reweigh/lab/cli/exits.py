"""How a command ends: its exit code, one line for each expected error, and a clean stop on Ctrl-C and SIGTERM."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, NamedTuple

from reweigh.errors import DataError, MissingExtraError

FAILED = 1
USAGE = 2
BAD_DATA = 3
STOPPED = 4
DIVERGED = 5
INTERRUPTED = 130

LAB = "pip install 'reweigh[lab]'"
_DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "safetensors": "safetensors", "typer": "typer"}

# parts of the plain RuntimeErrors that torch raises when the CPU, a GPU or a GPU library runs out of memory
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")


class ExitError(Exception):
    """End the command with an exit code and a message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Exit(NamedTuple):
    """An exit code and its message."""

    code: int
    message: str


def exit_for(error: BaseException) -> Exit | None:
    """Return the exit code and message of an expected error; None for any other, which keeps its traceback.

    >>> exit_for(DataError("x.csv: no column 'label'"))
    Exit(code=3, message="x.csv: no column 'label'")
    >>> exit_for(ZeroDivisionError()) is None
    True
    """
    message = str(error) or type(error).__name__
    match error:
        case ExitError():
            return Exit(error.code, message)
        case KeyboardInterrupt():
            return Exit(INTERRUPTED, "interrupted")
        case DataError():
            return Exit(BAD_DATA, message)
        case ValueError():
            return Exit(USAGE, message)
        case BrokenPipeError():  # the reader of a pipe has closed it: typer exits quietly
            return None
        case OSError():
            return Exit(FAILED, _os_message(error))
        case MissingExtraError():
            return Exit(FAILED, message)
        case ModuleNotFoundError():
            missing = missing_package(error)
            return None if missing is None else Exit(FAILED, f"{missing} is not installed: {LAB}")
        case MemoryError():
            return Exit(FAILED, f"not enough memory: {message}")
    if type(error).__name__ == "OutOfMemoryError":  # torch's; torch must not be imported for this
        return Exit(FAILED, f"not enough memory on the device; try a smaller batch: {message}")
    if isinstance(error, RuntimeError) and any(words in message for words in _NO_MEMORY):
        return Exit(FAILED, f"not enough memory; try a smaller batch or net: {message.partition(chr(10))[0]}")
    return None


def missing_package(error: ImportError) -> str | None:
    """Return the package of the extra `lab` that this error misses, by its name on PyPI; None for another module.

    >>> missing_package(ModuleNotFoundError(name="PIL.Image")), missing_package(ModuleNotFoundError(name="reweigh"))
    ('pillow', None)
    """
    return _DISTRIBUTIONS.get((error.name or "").partition(".")[0])


def _os_message(error: OSError) -> str:
    """Return the message without Python's "[Errno 28]" in front.

    >>> _os_message(FileNotFoundError(2, "No such file or directory", "a.txt"))
    'a.txt: No such file or directory'
    """
    if error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror


class Stop:
    """Catch Ctrl-C and SIGTERM while entered; `stop()` is then true. A second Ctrl-C interrupts at once.

    `signal` is the first signal received, or None. Outside the main thread nothing is caught.

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

    @property
    def code(self) -> int:
        """The exit code of a command that was stopped by this signal."""
        return STOPPED if self.signal == signal.SIGTERM else INTERRUPTED

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in self._CAUGHT}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal == signal.SIGINT == number:
            raise KeyboardInterrupt
        if self.signal is None and number == signal.SIGINT:
            with suppress(OSError):  # not through sys.stderr: a signal may come in the middle of a write to it
                os.write(2, b"\nstopping after this iteration; press Ctrl-C again to stop at once\n")
        self.signal = self.signal or number
