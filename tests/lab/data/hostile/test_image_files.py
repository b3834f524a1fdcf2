"""Images that are cut off, lie about their size or are something else, alone and in folders."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reweigh.lab.data import folder
from reweigh.lab.data.source.images import FORMATS, Files, decode

NOISE = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)


def encoded(kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(NOISE).save(buffer, kind)
    return buffer.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds hardly any pixels."""

    def chunk(name: bytes, raw: bytes) -> bytes:
        return struct.pack(">I", len(raw)) + name + raw + struct.pack(">I", zlib.crc32(name + raw))

    start = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + start + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def gif_header(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + b",\0\0\0\0\1\0\1\0\0\2\2D\1\0;"


def bmp_header(width: int, height: int) -> bytes:
    return b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, *[0] * 6)


PNG, JPEG, GIF, BMP, TIFF, WEBP, PPM = map(encoded, ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"))

CASES = {
    **{f"PNG cut at {n}": PNG[:n] for n in (0, 1, 4, 8, 20, 33, 60, len(PNG) // 2, len(PNG) - 40)},
    **{f"JPEG cut at {n}": JPEG[:n] for n in (1, 2, 20, 100, 300, 623, len(JPEG) // 2, len(JPEG) - 200)},
    **{f"GIF cut at {n}": GIF[:n] for n in (3, 6, 10, 13, 100, len(GIF) // 2)},
    **{f"BMP cut at {n}": BMP[:n] for n in (2, 14, 30, 54, len(BMP) // 2)},
    **{f"TIFF cut at {n}": TIFF[:n] for n in (4, 8, 100, len(TIFF) // 2)},
    **{f"WEBP cut at {n}": WEBP[:n] for n in (4, 12, 30, len(WEBP) // 2)},
    **{f"PPM cut at {n}": PPM[:n] for n in (2, 5, 12, len(PPM) // 2)},
    "PNG bomb": png_header(100_000, 100_000),
    "PNG bomb in one line": png_header(2**31 - 1, 1),
    "PNG just over the limit": png_header(8193, 8192),
    "PNG that Pillow only warns of": png_header(10_000, 10_000),
    "PNG of no width": png_header(0, 10),
    "PNG without its pixels": png_header(500, 500),
    "GIF bomb": gif_header(65_535, 65_535),
    "BMP bomb": bmp_header(100_000, 100_000),
    "BMP of negative width": bmp_header(-5, 5),
    "PPM bomb": b"P6 100000 100000 255\n",
    "PPM of letters": b"P6 ten ten 255\n",
    "text": b"This is not an image.",
    "zeros": bytes(1000),
    "EPS, which would start a program": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n",
    "PDF": b"%PDF-1.4\n%%EOF",
    "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "pickle": b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.",
    "PNG with a wrong check sum": PNG[:40] + b"\xff\xff" + PNG[42:],
}


def test_there_are_many() -> None:
    assert len(CASES) + len(FOLDERS) >= 65


@pytest.mark.parametrize("kind", FORMATS)
def test_whole_images_are_read(kind, tmp_path) -> None:
    path = tmp_path / "picture"
    path.write_bytes(encoded(kind))
    assert decode(path).shape == (40, 40, 3)


@pytest.mark.parametrize("case", CASES)
def test_images_are_refused(case, tmp_path, refused) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(CASES[case])
    refused(lambda: decode(path), "picture.png")


@pytest.mark.parametrize("case", [case for case in CASES if "bomb" in case])
def test_bombs_are_refused_when_pillow_would_let_them_pass(case, tmp_path, refused, monkeypatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    path = tmp_path / "picture.png"
    path.write_bytes(CASES[case])
    assert "more than the limit of 67108864" in refused(lambda: decode(path), "picture.png")


def test_all_of_them_are_reported_together(tmp_path, refused) -> None:
    names = []
    for k, raw in enumerate(CASES.values()):
        names.append(f"{k:03d}.jpg")
        (tmp_path / names[-1]).write_bytes(raw)
    (tmp_path / "good.jpg").write_bytes(JPEG)
    message = refused(Files(tmp_path, (*names, "good.jpg")).check, f"{len(CASES)} of {len(CASES) + 1}")
    assert all(f"{name}: " in message for name in names)
    assert "good.jpg" not in message


def build(root: Path, *files: str) -> Path:
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_bytes(PNG)
        else:
            path.mkdir(exist_ok=True)
    root.mkdir(exist_ok=True)
    return root


FOLDERS = {
    "empty": ((), "pets"),
    "only files": (("a.png", "b.png"), "pets"),
    "one class": (("cat/a.png", "cat/b.png"), "pets"),
    "empty class": (("cat/a.png", "dog/"), "dog"),
    "class with hidden files only": (("cat/a.png", "dog/.a.png"), "dog"),
    "empty test class": (("train/cat/a.png", "train/dog/a.png", "test/cat/"), "test/cat"),
    "empty test folder": (("train/cat/a.png", "train/dog/a.png", "test/"), "test"),
    "unknown test class": (("train/cat/a.png", "train/dog/a.png", "test/cow/a.png"), "cow"),
    "one training class": (("train/cat/a.png", "test/cat/a.png", "test/dog/a.png"), "train"),
    "too few to hold out": (("cat/a.png", "dog/a.png"), "pets"),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_folders_are_refused(case, tmp_path, refused) -> None:
    files, named = FOLDERS[case]
    root = build(tmp_path / "pets", *files)
    refused(lambda: folder.load(root), named)


def test_a_file_for_a_folder(tmp_path, refused) -> None:
    (tmp_path / "pets").write_bytes(PNG)
    refused(lambda: folder.load(tmp_path / "pets"), "is not a folder")
    refused(lambda: folder.load(tmp_path / "none"), "no such folder")


def test_dangling_links_are_reported(tmp_path, refused) -> None:
    root = build(tmp_path / "pets", "cat/a.png", "dog/a.png")
    (root / "dog" / "b.png").symlink_to(root / "nowhere.png")
    refused(lambda: folder.load(root), "dog/b.png")
