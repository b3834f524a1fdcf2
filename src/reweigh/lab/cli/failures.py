"""How a command ends: exit codes, and one sentence for everything that can be expected to go wrong."""

from __future__ import annotations

from typing import NamedTuple

from reweigh.errors import DataError, MissingExtraError

FAILED = 1
USAGE = 2
BAD_DATA = 3
STOPPED = 4
INTERRUPTED = 130

# what torch says in a RuntimeError of no kind of its own: of the CPU, of a GPU, of a library on it
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")


class EndedError(Exception):
    """A command's own end other than success: the exit code, and a sentence for the user."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class Verdict(NamedTuple):
    """An exit code and what to say."""

    code: int
    sentence: str


def verdict(error: BaseException) -> Verdict | None:
    """What an expected error means for the user; None for anything else, which deserves its traceback.

    >>> verdict(DataError("x.csv: no column 'label'"))
    Verdict(code=3, sentence="x.csv: no column 'label'")
    >>> verdict(ZeroDivisionError()) is None
    True
    """
    sentence = str(error) or type(error).__name__
    match error:
        case EndedError():
            return Verdict(error.code, sentence)
        case KeyboardInterrupt():
            return Verdict(INTERRUPTED, "stopped at once")
        case DataError():
            return Verdict(BAD_DATA, sentence)
        case ValueError():
            return Verdict(USAGE, sentence)
        case BrokenPipeError():  # the reader of a pipe has gone: typer ends quietly
            return None
        case MissingExtraError() | OSError():
            return Verdict(FAILED, _os_sentence(error) if isinstance(error, OSError) else sentence)
        case MemoryError():
            return Verdict(FAILED, f"not enough memory: {sentence}")
    if type(error).__name__ == "OutOfMemoryError":  # torch's, which must not be imported for this
        return Verdict(FAILED, f"not enough memory on the device; a smaller batch may do: {sentence}")
    if isinstance(error, RuntimeError) and any(words in sentence for words in _NO_MEMORY):
        return Verdict(FAILED, f"not enough memory; a smaller batch or net may do: {sentence.partition(chr(10))[0]}")
    return None


def _os_sentence(error: OSError) -> str:
    """The sentence without Python's "[Errno 28]" in front.

    >>> _os_sentence(FileNotFoundError(2, "No such file or directory", "a.txt"))
    'a.txt: No such file or directory'
    """
    if error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
