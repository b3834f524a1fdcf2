"""Writers of tiny files in exactly the official layouts."""

from __future__ import annotations

import os
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from reweigh.errors import DataError

_CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR100 = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can "
    "castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin "
    "elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard "
    "lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear "
    "pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark "
    "shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone "
    "television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm"
)
CIFAR10, FINE = _CIFAR10.split(), _CIFAR100.split()


@pytest.fixture
def real_data() -> Path:
    """The folder of real data, or a skip that says what is missing."""
    if not os.environ.get("REWEIGH_DATA"):
        pytest.skip("REWEIGH_DATA is not set: no real data to test on")
    return Path(os.environ["REWEIGH_DATA"])


def _py2(value: Any) -> bytes:
    """`value` in the opcodes Python 2 wrote with protocol 2: byte strings, numpy.core, no `_codecs.encode`."""
    if isinstance(value, bytes):
        return b"T" + struct.pack("<I", len(value)) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(_py2, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(_py2(k) + _py2(v) for k, v in value.items()) + b"u"
    assert isinstance(value, np.ndarray)
    shape = b"(" + b"".join(map(_py2, value.shape)) + b"t"
    kind, order = value.dtype.str[1:].encode(), value.dtype.str[:1].encode()
    dtype = b"cnumpy\ndtype\n" + _py2(kind) + b"K\x00K\x01\x87R(K\x03" + _py2(order) + b"NNNJ\xff\xff\xff\xff"
    dtype += b"J\xff\xff\xff\xffK\x00tb"
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return empty + b"(K\x01" + shape + dtype + b"\x89" + _py2(value.tobytes()) + b"tb"


@pytest.fixture
def py2_pickle() -> Callable[[Any], bytes]:
    """The pickle Python 2 would have written."""
    return lambda value: b"\x80\x02" + _py2(value) + b"."


def _pictures(indices: range) -> np.ndarray:
    """Rows of 3072 bytes: red = record index, green = index + 100, blue = the pixel's column."""
    rows = np.empty((len(indices), 3, 32, 32), np.uint8)
    rows[:, 0] = np.array(indices)[:, None, None]
    rows[:, 1] = np.array(indices)[:, None, None] + 100
    rows[:, 2] = np.arange(32)
    return rows.reshape(len(indices), 3072)


class Cifar:
    """Writes the same records as python or binary version: batch k holds records 4k .. 4k+3, label = index mod C."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def python10(self) -> Path:
        folder = self.root / "cifar-10-batches-py"
        folder.mkdir(parents=True)
        for k in range(6):
            name = f"data_batch_{k + 1}" if k < 5 else "test_batch"
            span = range(4 * k, 4 * k + 4)
            batch = {
                b"batch_label": b"batch %d" % k,
                b"labels": [i % 10 for i in span],
                b"data": _pictures(span),
                b"filenames": [b"picture_%d.png" % i for i in span],
            }
            (folder / name).write_bytes(b"\x80\x02" + _py2(batch) + b".")
        meta = {b"num_cases_per_batch": 4, b"label_names": [n.encode() for n in CIFAR10], b"num_vis": 3072}
        (folder / "batches.meta").write_bytes(b"\x80\x02" + _py2(meta) + b".")
        return folder

    def binary10(self) -> Path:
        folder = self.root / "cifar-10-batches-bin"
        folder.mkdir(parents=True)
        for k in range(6):
            name = f"data_batch_{k + 1}.bin" if k < 5 else "test_batch.bin"
            span = range(4 * k, 4 * k + 4)
            rows = zip(span, _pictures(span), strict=True)
            (folder / name).write_bytes(b"".join(bytes([i % 10]) + row.tobytes() for i, row in rows))
        (folder / "batches.meta.txt").write_text("\n".join(CIFAR10) + "\n\n")
        return folder

    def python100(self, superclass: tuple[int, ...], count: int = 100) -> Path:
        folder = self.root / "cifar-100-python"
        folder.mkdir(parents=True)
        for name, span in (("train", range(count)), ("test", range(0, count, 5))):
            fine = [i % 100 for i in span]
            batch = {
                b"filenames": [b"picture_%d.png" % i for i in span],
                b"batch_label": b"all",
                b"fine_labels": fine,
                b"coarse_labels": [superclass[k] for k in fine],
                b"data": _pictures(span),
            }
            (folder / name).write_bytes(b"\x80\x02" + _py2(batch) + b".")
        meta = {b"fine_label_names": [n.encode() for n in FINE], b"coarse_label_names": [b"%d" % k for k in range(20)]}
        (folder / "meta").write_bytes(b"\x80\x02" + _py2(meta) + b".")
        return folder

    def binary100(self, superclass: tuple[int, ...], count: int = 100) -> Path:
        folder = self.root / "cifar-100-binary"
        folder.mkdir(parents=True)
        for name, span in (("train.bin", range(count)), ("test.bin", range(0, count, 5))):
            rows = zip((i % 100 for i in span), _pictures(span), strict=True)
            raw = b"".join(bytes([superclass[fine], fine]) + row.tobytes() for fine, row in rows)
            (folder / name).write_bytes(raw)
        (folder / "fine_label_names.txt").write_text("\n".join(FINE) + "\n")
        (folder / "coarse_label_names.txt").write_text("\n".join(map(str, range(20))) + "\n")
        return folder


@pytest.fixture
def cifar_files(tmp_path: Path) -> Cifar:
    """A writer of CIFAR folders below `tmp_path / "data"`."""
    return Cifar(tmp_path / "data")


@pytest.fixture
def human_labels() -> Callable[[Path, dict[str, Any]], Path]:
    """Writes a CIFAR-N `.pt`: a zip whose only payload is `archive/data.pkl`."""

    def write(path: Path, content: dict[str, Any]) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as pack:
            pack.writestr("archive/data.pkl", pickle.dumps(content, protocol=2))
            pack.writestr("archive/version", "3\n")
        return path

    return write


@pytest.fixture
def peak() -> Callable[[Callable[[], object]], int]:
    """How many bytes Python held at most while `act` ran, whether it was refused or not."""

    def measure(act: Callable[[], object]) -> int:
        tracemalloc.start()
        try:
            with suppress(DataError):
                act()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    return measure


@pytest.fixture
def paint() -> Callable[..., Path]:
    """Writes a solid picture; the format follows the name's ending."""

    def write(path: Path, colour: Any = (10, 20, 30), size: tuple[int, int] = (6, 4), mode: str = "RGB") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, size, colour).save(path)
        return path

    return write
