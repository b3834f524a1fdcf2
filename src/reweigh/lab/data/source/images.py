"""Images decoded by Pillow: eight-bit RGB, a closed list of formats, and a pixel limit of our own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from reweigh.errors import DataError

Pixels = NDArray[np.uint8]

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
"""What Pillow may open; a closed list, because some of its readers start programs (EPS runs Ghostscript)."""

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"})

MAX_PIXELS = 2**26
"""Width times height of the largest image decoded: 8192 x 8192, or 192 MiB as RGB."""

_SAMPLE = 1024


def decode(path: Path, max_pixels: int = MAX_PIXELS, size: tuple[int, int] | None = None) -> Pixels:
    """One image file as a uint8 array (H, W, 3).

    The first frame only; transparency is dropped and the EXIF orientation ignored, as in torchvision. Colours
    of 16 bits are scaled to eight; grey images of more than eight bits are refused, because Pillow would clip them
    to white.

    Args:
        path: the file.
        max_pixels: refuse an image whose header claims more, before a pixel is decoded, whatever
            `PIL.Image.MAX_IMAGE_PIXELS` says (a smaller value there refuses too).
        size: resize to (height, width), bilinear.
    """
    try:
        if not path.is_file() and path.exists():  # a pipe would be waited for
            raise DataError(f"{path}: not a readable image: not a regular file")
        with path.open("rb") as file, Image.open(file, formats=FORMATS) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise DataError(f"{path}: {width} x {height} pixels, more than the limit of {max_pixels}")
            if image.mode in {"I", "F"} or image.mode.startswith("I;"):
                raise DataError(f"{path}: pixel mode {image.mode}: grey images are read with 8 bits only")
            # A palette with transparency goes by way of RGBA: Pillow's own advice, and it warns otherwise.
            via = image.convert("RGBA") if image.mode in {"P", "PA"} else image
            rgb = via.convert("RGB")
    except DataError:
        raise
    except Exception as error:  # a hostile image can raise nearly anything from inside a decoder
        raise DataError(f"{path}: not a readable image: {_reason(error)}") from error
    if size is not None:
        rgb = rgb.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return np.array(rgb, dtype=np.uint8)


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return f"not one of {', '.join(FORMATS)}, or its header is broken"
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return str(error) or type(error).__name__


@dataclass(frozen=True)
class Files:
    """Image files decoded when they are asked for: `len(files)`, `files[i]` -> uint8 (H, W, 3).

    Args:
        root: the folder that `names` are relative to.
        names: relative names with forward slashes, in example order.
        max_pixels: see `decode`.
    """

    root: Path
    names: tuple[str, ...] = field(repr=False)
    max_pixels: int = MAX_PIXELS

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Pixels:
        return self.decoded(index)

    def decoded(self, index: int, size: tuple[int, int] | None = None) -> Pixels:
        """Example `index`, resized to (height, width) where that is given."""
        return decode(self.path(index), self.max_pixels, size)

    def path(self, index: int) -> Path:
        """Where example `index` lies."""
        return self.root / self.names[index]

    def take(self, indices: Sequence[int] | NDArray[np.int64]) -> Files:
        """The files at `indices`, in that order."""
        return Files(self.root, tuple(self.names[int(i)] for i in indices), self.max_pixels)

    def digest(self) -> bytes:
        """sha256 over each file's name, size, first and last KiB: affordable for a million files."""
        whole = hashlib.sha256()
        for i, name in enumerate(self.names):
            whole.update(_sample(name, self.path(i)))
        return whole.digest()

    def check(self) -> None:
        """Decode every file once and report *all* that cannot be read in one `DataError`."""
        failures = []
        for i in range(len(self)):
            try:
                self[i]
            except DataError as error:
                failures.append(str(error))
        _refuse(self.root, failures, len(self))

    def array(self, size: tuple[int, int]) -> Pixels:
        """All images as one array (N, H, W, 3), resized to (height, width); reports as `check` does."""
        pixels = np.empty((len(self), *size, 3), dtype=np.uint8)
        failures = []
        for i in range(len(self)):
            try:
                pixels[i] = self.decoded(i, size)
            except DataError as error:
                failures.append(str(error))
        _refuse(self.root, failures, len(self))
        return pixels


def _refuse(root: Path, failures: list[str], total: int) -> None:
    if failures:
        raise DataError(f"{root}: {len(failures)} of {total} images cannot be read:\n  " + "\n  ".join(failures))


def _sample(name: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            first = file.read(_SAMPLE)
            file.seek(max(0, size - _SAMPLE))
            last = file.read(_SAMPLE)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    return hashlib.sha256(f"{len(name)}:{name}:{size}:".encode("utf-8", "surrogateescape") + first + last).digest()


SHOWN = 5


class Listing:
    """The files under a root, each folder read once when first asked about.

    >>> "no/such.jpg" in Listing(Path("."))
    False
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folders: dict[str, frozenset[str]] = {}

    def __contains__(self, name: str) -> bool:
        folder, _, file = name.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = _entries(self.root / folder)
        return file in self._folders[folder]


def _entries(folder: Path) -> frozenset[str]:
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if entry.is_file())
    except (OSError, ValueError):  # ValueError: a null byte in a listed name
        return frozenset()


def check_inside(
    names: Iterable[str], where: Path, place: Callable[[int], str] = lambda number: f"line {number + 1}"
) -> None:
    """Refuse a listed name that is absolute or climbs out of its folder.

    Args:
        names: as listed.
        where: the file that lists them.
        place: where in it name number `i` stands, from 0; by default every line has one.
    """
    for number, name in enumerate(names):
        if name.startswith("/") or "\\" in name or ".." in name.split("/"):
            raise DataError(f"{where}: {place(number)}: {name!r} leads out of the data folder")


def refuse_missing(root: Path, missing: Sequence[str], total: int) -> None:
    """Report files that are listed but not there, all counted and the first few named."""
    if missing:
        more = "" if len(missing) <= SHOWN else f" and {len(missing) - SHOWN} more"
        raise DataError(
            f"{root}: {len(missing)} of {total} listed files are missing: {', '.join(missing[:SHOWN])}{more}"
        )
