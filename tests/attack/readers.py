"""Feed random and damaged bytes to the unpickler and to the reader of MATLAB files.

Each must be read or refused with a DataError. An audit hook notes everything else that a file makes the process do:
importing, opening, starting a process, calling C.
"""

from __future__ import annotations

import pickle
import random
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from attack.processes import in_batches
from reweigh.errors import DataError
from reweigh.lab.data.source import matlab, unpickle

_WORDS = ["os", "system", "builtins", "eval", "exec", "open", "numpy", "ndarray", "numpy.core.multiarray", "fromfile"]
_WORDS += ["_reconstruct", "dtype", "copyreg", "_reconstructor", "subprocess", "Popen", "_codecs", "encode", "scalar"]


def pickles(rng: random.Random) -> bytes:
    """Return a pickle of opcodes drawn at random, or a valid one with damaged bytes."""
    if rng.random() < 0.5:
        content = {
            "labels": [rng.randrange(10) for _ in range(rng.randrange(5))],
            "data": np.zeros(rng.randrange(30), dtype=rng.choice(["u1", "<i8", ">f4", "?"])),
            b"names": [b"a", "b", None, 1.5, np.float32(2)],
        }
        return _damaged(pickle.dumps(content, rng.randrange(6)), rng)
    raw = b"\x80" + bytes([rng.randrange(2, 6)])
    for _ in range(rng.randrange(1, 25)):
        word, other = rng.choice(_WORDS).encode(), rng.choice(_WORDS).encode()
        raw += rng.choice(
            [
                b"c" + word + b"\n" + other + b"\n",
                b"\x8c" + bytes([len(word)]) + word,
                b"X" + struct.pack("<I", rng.choice([len(word), 2**31])) + word,
                b"\x8c" + bytes([len(word)]) + word + b"\x8c" + bytes([len(other)]) + other + b"\x93",
                b"i" + word + b"\n" + other + b"\n",
                *(bytes([code]) for code in b"()]}0tlduasbRo\x81\x92\x85\x86\x87Ne\x88\x94Q"),
                b"K" + rng.randbytes(1), b"J" + rng.randbytes(4), b"C" + bytes([3]) + rng.randbytes(3),
                b"h" + rng.randbytes(1), b"q" + rng.randbytes(1), b"\x95" + rng.randbytes(8),
            ]
        )  # fmt: skip
    return raw + b"."


def matrices(rng: random.Random) -> bytes:
    """Return a MATLAB file of valid, invented and damaged elements."""
    order = rng.choice("<>")
    header = b"MATLAB 5.0".ljust(124) + (b"\x00\x01IM" if order == "<" else b"\x01\x00MI")

    def element(kind: int, body: bytes, size: int | None = None) -> bytes:
        return struct.pack(order + "II", kind, len(body) if size is None else size) + body + bytes(-len(body) % 8)

    honest = rng.random() < 0.5

    def some(number: int) -> int:
        return number if honest else rng.choice([number, number, 0, 1, 2**31 - 1, 2**32 - 1, rng.randrange(2**32)])

    rows, columns, kind = rng.randrange(4), rng.randrange(4), rng.choice([1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 99])
    width = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4}.get(kind, 8)
    parts = [
        element(6, struct.pack(order + "II", some(rng.randrange(5, 16)), 0)),
        element(5, struct.pack(order + "II", some(rows), some(columns))),
        element(1, rng.choice([b"v", b"v", b"v", b"other", b"v" * 40, b""])),
        element(kind, rng.randbytes(rows * columns * width)),
    ]
    if rng.random() < 0.2:
        rng.shuffle(parts)
    body = b"".join(parts[: rng.randrange(1, 5)] if rng.random() < 0.2 else parts)
    matrix = element(14, body, some(len(body)))
    if rng.random() < 0.4:
        packed = zlib.compress(matrix)
        matrix = struct.pack(order + "II", 15, some(len(packed))) + packed
    raw = header + matrix * rng.randrange(1, 3)
    return _damaged(raw, rng) if rng.random() < 0.5 else raw


def _damaged(raw: bytes, rng: random.Random) -> bytes:
    changed = bytearray(raw)
    for _ in range(rng.choice([0, 1, 1, 2, 5])):
        i = rng.randrange(len(changed))
        match rng.randrange(4):
            case 0:
                changed[i] = rng.randrange(256)
            case 1:
                del changed[i : i + rng.randrange(1, 9)]
            case 2:
                changed[i:i] = rng.randbytes(rng.randrange(1, 9))
            case _:
                changed[i:] = b""
        changed = changed or bytearray(b".")
    return bytes(changed)


def _read_pickle(raw: bytes) -> object:
    return unpickle.loads(raw, "fuzzed")


def _read_matrix(raw: bytes) -> object:
    path = Path("fuzzed.mat")
    path.write_bytes(raw)
    return matlab.read_integers(path, "v")


READERS: dict[str, tuple[Callable[[random.Random], bytes], Callable[[bytes], object]]] = {
    "unpickler": (pickles, _read_pickle),
    "MATLAB reader": (matrices, _read_matrix),
}

# what Python itself reports while it reads a pickle
HARMLESS = ("pickle.find_class", "object.__getattr__", "object.__setattr__", "object.__delattr__")


def readers(name: str, rng: random.Random, scratch: Path) -> Iterator[tuple[str, str]]:
    """Yield (outcome, details) of each input; `read` and `refused` are good."""
    draw, read = READERS[name]
    events: list[str] = []
    watching = False

    def prepare() -> None:
        _outcome(read, pickle.dumps({"a": "é"}, 0))  # imports a codec
        sys.addaudithook(audit)

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event not in HARMLESS and (event, arguments[0]) != ("open", "fuzzed.mat"):
            events.append(f"{event} {arguments!r:.100}")

    def one(inputs: random.Random) -> tuple[str, str]:
        nonlocal watching
        raw = draw(inputs)
        watching = True
        outcome, why = _outcome(read, raw)
        watching = False
        if events:
            outcome, why = "executed", "; ".join(events)
            events.clear()
        return outcome, f"{why}: {raw!r}"

    return in_batches(one, prepare, rng, scratch, batch=2000)


def _outcome(read: Callable[[bytes], object], raw: bytes) -> tuple[str, str]:
    try:
        read(raw)
    except DataError:
        return "refused", ""
    except Exception as error:
        return "crashed", f"{type(error).__name__}: {error!s:.100}"
    return "read", ""
