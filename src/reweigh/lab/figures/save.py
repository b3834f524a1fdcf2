"""A figure into a file whose ending says what it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reweigh.lab.figures.curves import Curve
from reweigh.lab.figures.png import png
from reweigh.lab.figures.svg import svg
from reweigh.lab.record.files import make_folder, replace_file


def save(curves: Sequence[Curve], path: Path) -> None:
    """Write the curves to `path`, an .svg or, with matplotlib, a .png."""
    suffix = path.suffix.lower()
    if suffix not in (".svg", ".png"):
        raise ValueError(f"{path}: a figure ends in .svg or .png")
    content = svg(curves).encode() if suffix == ".svg" else png(curves)
    make_folder(path.parent)
    replace_file(path, lambda file: file.write(content))
