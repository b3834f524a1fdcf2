"""Image files, decoded by Pillow to 8-bit RGB, with a closed list of formats and a pixel limit."""

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
"""The formats Pillow may open; some others start programs (EPS runs Ghostscript)."""

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"})

MAX_PIXELS = 2**26
"""The largest width times height: 8192 x 8192, or 192 MiB as RGB."""

_SAMPLE = 1024


def decode(path: Path, max_pixels: int = MAX_PIXELS, size: tuple[int, int] | None = None) -> Pixels:
    """Decode an image file to a uint8 array (H, W, 3).

    Only the first frame is read; transparency is dropped and the EXIF orientation ignored, as in torchvision. 16-bit
    colours are scaled to 8 bits; grey images of more than 8 bits raise DataError, as Pillow would clip them to white.

    Args:
        path: the file.
        max_pixels: the largest number of pixels, checked in the header before decoding, in addition to
            `PIL.Image.MAX_IMAGE_PIXELS`.
        size: resize to (height, width), bilinear.
    """
    try:
        if not path.is_file() and path.exists():  # reading from a pipe would block
            raise DataError(f"{path}: not a readable image: not a regular file")
        with path.open("rb") as file, Image.open(file, formats=FORMATS) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise DataError(f"{path}: {width} x {height} pixels, more than the limit of {max_pixels}")
            if image.mode in {"I", "F"} or image.mode.startswith("I;"):
                raise DataError(f"{path}: pixel mode {image.mode}: grey images must have 8 bits")
            # a palette with transparency is converted by way of RGBA, as Pillow warns otherwise
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
        return f"not one of {', '.join(FORMATS)}, or its header is damaged"
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return str(error) or type(error).__name__


@dataclass(frozen=True)
class Files:
    """Image files decoded on access: `len(files)`, `files[i]` -> uint8 (H, W, 3).

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
        """Decode example `index`, resized to (height, width) if given."""
        return decode(self.path(index), self.max_pixels, size)

    def path(self, index: int) -> Path:
        """Return the path of example `index`."""
        return self.root / self.names[index]

    def take(self, indices: Sequence[int] | NDArray[np.int64]) -> Files:
        """Return the files at `indices`, in that order."""
        return Files(self.root, tuple(self.names[int(i)] for i in indices), self.max_pixels)

    def digest(self) -> bytes:
        """Return the SHA-256 over the name, size, first and last KiB of each file; fast enough for a million."""
        digest = hashlib.sha256()
        for i, name in enumerate(self.names):
            digest.update(_sample(name, self.path(i)))
        return digest.digest()

    def check(self) -> None:
        """Decode every file once, and report *all* unreadable ones in one `DataError`."""
        failures = []
        for i in range(len(self)):
            try:
                self[i]
            except DataError as error:
                failures.append(str(error))
        _raise_unreadable(self.root, failures, len(self))

    def array(self, size: tuple[int, int]) -> Pixels:
        """Return all images as an array (N, H, W, 3), resized to (height, width); raise DataError as `check` does."""
        pixels = np.empty((len(self), *size, 3), dtype=np.uint8)
        failures = []
        for i in range(len(self)):
            try:
                pixels[i] = self.decoded(i, size)
            except DataError as error:
                failures.append(str(error))
        _raise_unreadable(self.root, failures, len(self))
        return pixels


def _raise_unreadable(root: Path, failures: list[str], total: int) -> None:
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


_MAX_SHOWN = 5


class Listing:
    """The files below a root; each folder is read once, on first use.

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
    """Raise DataError for a listed name that is absolute or leads out of its folder.

    Args:
        names: as listed.
        where: the file that lists them.
        place: returns the place of name number `i`, from 0, in that file; by default its line.
    """
    for number, name in enumerate(names):
        if name.startswith("/") or "\\" in name or ".." in name.split("/"):
            raise DataError(f"{where}: {place(number)}: {name!r} leads out of the data folder")


def refuse_missing(root: Path, missing: Sequence[str], total: int) -> None:
    """Raise DataError if any listed file is missing, with the number and the first few names."""
    if missing:
        more = "" if len(missing) <= _MAX_SHOWN else f" and {len(missing) - _MAX_SHOWN} more"
        raise DataError(
            f"{root}: {len(missing)} of {total} listed files are missing: {', '.join(missing[:_MAX_SHOWN])}{more}"
        )
