"""Previews of examples for a page: a small image as data URI, an excerpt of a text, the unusual numbers of a row."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from reweigh.errors import DataError
from reweigh.lab.data.dataset import Column, Part
from reweigh.lab.data.source.images import Files
from reweigh.lab.data.table import value_of

VALUES = 6  # number of columns of a table to show


class Detail(NamedTuple):
    """Size of a preview: the longer side of an image, its JPEG quality, the number of characters of a text."""

    side: int
    quality: int
    letters: int


Sketch: TypeAlias = "Callable[[int, Detail], dict[str, Any]]"
"""(row of the part, detail) -> {"image": ...}, {"text": ...} or {"values": [[name, number], ...]}"""


def sketcher(part: Part, columns: Sequence[Column] | None = None) -> Sketch:
    """Return a function that previews examples of a part; `columns` are those of the table it was read from."""
    inputs = part.inputs
    if isinstance(inputs, tuple):
        return lambda row, detail: {"text": excerpt(inputs[row], detail.letters)}
    if isinstance(inputs, Files):
        return lambda row, detail: _file(inputs, row, detail)
    if inputs.ndim == 4:
        return lambda row, detail: {"image": data_uri(inputs[row], detail)}
    return _unusual(inputs, columns)


def data_uri(pixels: NDArray[Any], detail: Detail) -> str:
    """Return an image (H, W, C) of uint8 as a JPEG data URI, at most `detail.side` wide and high.

    The first three channels are red, green and blue; with fewer, the first is shown in grey.
    """
    image = Image.fromarray(np.ascontiguousarray(pixels[..., :3] if pixels.shape[-1] >= 3 else pixels[..., 0]))
    image.thumbnail((detail.side, detail.side), Image.Resampling.LANCZOS)
    written = io.BytesIO()
    image.save(written, "JPEG", quality=detail.quality, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(written.getvalue()).decode()}"


def excerpt(text: str, letters: int) -> str:
    """Return the beginning and the end of a text, with whitespace as single blanks.

    >>> excerpt("one two  three four five six", 14)
    'one two … six'
    """
    plain = " ".join(text.replace("<br />", " ").split())
    if len(plain) <= letters:
        return plain
    half = letters // 2 + 1  # one more, to include the blank next to a complete word
    head, tail = plain[:half], plain[-half:]
    return f"{head.rpartition(' ')[0] or head} … {tail.partition(' ')[2] or tail}"


def _file(files: Files, row: int, detail: Detail) -> dict[str, Any]:
    try:
        return {"image": data_uri(files[row], detail)}
    except DataError as error:  # shown in place of the image
        return {"text": str(error)}


def _unusual(inputs: NDArray[Any], columns: Sequence[Column] | None) -> Sketch:
    """Return a function that shows the numbers farthest from their column's mean, in the units of the table."""
    centre = inputs.mean(axis=0, dtype=np.float64)
    width = inputs.std(axis=0, dtype=np.float64)
    width[width == 0] = 1

    owners = [start for column, start in _starts(columns) for _ in range(column.width)]

    def sketch(row: int, detail: Detail) -> dict[str, Any]:
        values = inputs[row].astype(np.float64)
        order = np.argsort(-np.abs(values - centre) / width, kind="stable").tolist()
        if columns is None:
            return {"values": [[f"feature {k}", float(f"{values[k]:.4g}")] for k in sorted(order[:VALUES])]}
        chosen = list(dict.fromkeys(owners[k] for k in order))[:VALUES]
        named = [(column, start) for column, start in _starts(columns) if start in chosen]
        return {"values": [[column.name, value_of(column, values[start:][: column.width])] for column, start in named]}

    return sketch


def _starts(columns: Sequence[Column] | None) -> list[tuple[Column, int]]:
    """Return each column that has features, and the first of them."""
    ends = np.cumsum([column.width for column in columns or ()]).tolist()
    return [(column, end - column.width) for column, end in zip(columns or (), ends, strict=True) if column.width]
