from __future__ import annotations

import os
import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reweigh.errors import DataError
from reweigh.lab.data.source.images import Files, decode


@pytest.mark.parametrize(
    ("name", "mode", "colour", "expected"),
    [
        ("a.png", "RGB", (10, 20, 30), [10, 20, 30]),
        ("a.png", "RGBA", (10, 20, 30, 0), [10, 20, 30]),
        ("a.png", "L", 7, [7, 7, 7]),
        ("a.png", "LA", (7, 0), [7, 7, 7]),
        ("a.png", "1", 1, [255, 255, 255]),
        ("a.png", "P", 0, [0, 0, 0]),
        ("a.gif", "P", 0, [0, 0, 0]),
        ("a.bmp", "RGB", (10, 20, 30), [10, 20, 30]),
        ("a.ppm", "RGB", (10, 20, 30), [10, 20, 30]),
        ("a.tif", "RGB", (10, 20, 30), [10, 20, 30]),
        ("a.jpg", "CMYK", (0, 0, 0, 0), [255, 255, 255]),
    ],
)
def test_all_modes_become_rgb(tmp_path, paint, name, mode, colour, expected) -> None:
    pixels = decode(paint(tmp_path / name, colour, size=(6, 4), mode=mode))
    assert pixels.shape == (4, 6, 3)
    assert pixels.dtype == np.uint8
    assert pixels[0, 0].tolist() == expected


def test_palette_with_transparency(tmp_path) -> None:
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 200, 100, 50])
    image.save(tmp_path / "a.png", transparency=b"\x00\x80")
    assert decode(tmp_path / "a.png")[0, 0].tolist() == [200, 100, 50]


def test_resize_is_height_then_width(tmp_path, paint) -> None:
    assert decode(paint(tmp_path / "a.png", size=(6, 4)), size=(5, 9)).shape == (5, 9, 3)


def test_grey_of_sixteen_bits_is_refused(tmp_path) -> None:
    Image.fromarray(np.full((4, 4), 60000, np.uint16)).save(tmp_path / "a.png")
    with pytest.raises(DataError, match="8 bits"):
        decode(tmp_path / "a.png")


def test_pixel_limit_is_our_own(tmp_path, paint, monkeypatch) -> None:
    path = paint(tmp_path / "a.png", size=(100, 100))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert decode(path, max_pixels=10_000).shape == (100, 100, 3)
    with pytest.raises(DataError, match="100 x 100 pixels, more than the limit of 9999"):
        decode(path, max_pixels=9_999)


def test_files_decode_on_request(tmp_path, paint) -> None:
    for i in range(3):
        paint(tmp_path / "sub" / f"{i}.png", (i, i, i), size=(2 + i, 2))
    files = Files(tmp_path, tuple(f"sub/{i}.png" for i in range(3)))
    assert [pixels.shape for pixels in files] == [(2, 2, 3), (2, 3, 3), (2, 4, 3)]
    assert files[-1][0, 0, 0] == 2
    assert files.take([2, 0]).names == ("sub/2.png", "sub/0.png")
    assert files.array((2, 2)).shape == (3, 2, 2, 3)
    assert pickle.loads(pickle.dumps(files)) == files
    files.check()
    with pytest.raises(IndexError):
        files[3]


def test_check_reports_everything_at_once(tmp_path, paint) -> None:
    paint(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes(b"no")
    files = Files(tmp_path, ("good.png", "bad.png", "absent.jpg"))
    for act in (files.check, lambda: files.array((2, 2))):
        with pytest.raises(DataError, match="2 of 3") as caught:
            act()
        assert "bad.png" in str(caught.value)
        assert "absent.jpg: not a readable image: no such file" in str(caught.value)


def test_digest_of_a_missing_file_names_it(tmp_path) -> None:
    with pytest.raises(DataError, match=r"a\.png"):
        Files(tmp_path, ("a.png",)).digest()


def test_colours_of_sixteen_bits_are_scaled_to_eight(tmp_path) -> None:
    def chunk(name: bytes, raw: bytes) -> bytes:
        return struct.pack(">I", len(raw)) + name + raw + struct.pack(">I", zlib.crc32(name + raw))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0))
    pixel = chunk(b"IDAT", zlib.compress(b"\0" + struct.pack(">3H", 0x0AFF, 0x1400, 0x1E80)))
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + header + pixel + chunk(b"IEND", b""))
    assert decode(tmp_path / "a.png").tolist() == [[[10, 20, 30]]]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, monkeypatch) -> None:
    os.mkfifo(tmp_path / "a.png")
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("opened, which would wait for ever"))
    with pytest.raises(DataError, match=r"a\.png: not a readable image: not a regular file"):
        decode(tmp_path / "a.png")
