"""Texts as vectors without a vocabulary: hashed words and word pairs, so that a saved model reads new texts."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

WIDTH = 2048
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def hashed(texts: Sequence[str], width: int = WIDTH) -> NDArray[np.float32]:
    """(N, width) float32: 1 + log(count) of every hashed word and pair of words, each row of length 1.

    The hash is CRC-32, the same on every machine; a text without words is a row of zeros.

    >>> a, b = hashed(["A good film.", "a GOOD film"])
    >>> bool((a == b).all()), round(float((a**2).sum()), 6)
    (True, 1.0)
    """
    rows = np.zeros((len(texts), width), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        words = [word.lower() for word in _WORD.findall(text)]
        terms = [*words, *(f"{a} {b}" for a, b in pairwise(words))]
        cells = np.array([zlib.crc32(term.encode()) % width for term in terms], dtype=np.int64)
        counts = np.bincount(cells, minlength=width)
        found = counts > 0
        row[found] = 1 + np.log(counts[found])
        row /= np.linalg.norm(row) or 1.0
    return rows
