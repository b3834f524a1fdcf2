"""Read text files; errors name the place of a bad byte."""

from __future__ import annotations

from pathlib import Path

from reweigh.errors import DataError

MAX_BYTES = 2**30


def read_bytes(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file of at most `max_bytes` bytes; raise DataError otherwise."""
    try:
        if not path.is_file():
            raise DataError(f"{path}: {'is not a regular file' if path.exists() else 'no such file'}")
        size = path.stat().st_size
        if size > max_bytes:
            raise DataError(f"{path}: {size} bytes, more than the limit of {max_bytes}")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def decode(raw: bytes, path: Path, encoding: str = "utf-8") -> str:
    """Decode `raw`; raise DataError with line and offset for a byte that is not `encoding`.

    >>> decode(b"caf\\xc3\\xa9", Path("menu.txt"))
    'café'
    >>> decode(b"one\\ntw\\xff", Path("menu.txt"))
    Traceback (most recent call last):
        ...
    reweigh.errors.DataError: menu.txt: line 2: byte 0xff at offset 6 is not utf-8; save it as UTF-8 ...
    """
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        bad = raw[error.start]
        hint = "; save it as UTF-8 (if it is Latin-1: iconv -f latin1 -t utf-8)" if encoding == "utf-8" else ""
        raise DataError(
            f"{path}: line {line}: byte {bad:#04x} at offset {error.start} is not {encoding}{hint}"
        ) from error


def read_text(path: Path, encoding: str = "utf-8", max_bytes: int = MAX_BYTES) -> str:
    """Return the text of a file, without a byte order mark (`encoding="utf-8"` only); line ends are kept."""
    text = decode(read_bytes(path, max_bytes), path, encoding)
    return text.removeprefix("\ufeff")


def read_lines(path: Path, encoding: str = "utf-8", max_bytes: int = MAX_BYTES) -> list[str]:
    """Return the lines of a file without their ends (LF or CRLF) and without empty lines at the end.

    Only LF ends a line, so that line numbers agree with editors: `str.splitlines` also splits at form feeds.
    """
    lines = [line.removesuffix("\r") for line in read_text(path, encoding, max_bytes).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines
