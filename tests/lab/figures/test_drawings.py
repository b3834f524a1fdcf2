from __future__ import annotations

import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from reweigh.lab.figures.curves import curve_of
from reweigh.lab.figures.draw_curves import HEIGHT, WIDTH, curves_svg, ticks, write_curves
from reweigh.lab.figures.text import ASCII, BLOCKS, bars, sparkline
from reweigh.weightings import CCE, DM, Beta

NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_an_svg_has_every_curve_inside_its_frame() -> None:
    curves = [curve_of(CCE(), "a < b & c"), curve_of(DM(2, -3)), curve_of(Beta(0.5, 0.5))]
    root = ElementTree.fromstring(curves_svg(curves))
    lines = root.findall(f"{NAMESPACE}polyline")
    assert len(lines) == 3
    assert len(root.findall(f"{NAMESPACE}circle")) == 1 + 2 + 2
    for line in lines:
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT
    assert "a < b & c" in [text.text for text in root.iter(f"{NAMESPACE}text")]


@pytest.mark.parametrize("name", ["curve.svg", "curve.png", "CURVE.PNG"])
def test_the_ending_decides(tmp_path: Path, name: str) -> None:
    write_curves([curve_of(CCE())], tmp_path / name)
    if name.lower().endswith(".png"):
        with Image.open(tmp_path / name) as image:
            assert image.size == (1080, 660)
            colours = image.convert("RGB").getcolors(1 << 20)
            assert colours is not None
            assert len(colours) > 10
    else:
        assert (tmp_path / name).read_text().endswith("</svg>\n")


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ends in \.svg or \.png"):
        write_curves([curve_of(CCE())], tmp_path / "curve.pdf")


@pytest.mark.parametrize("ramp", [BLOCKS, ASCII])
def test_bars_rise_with_the_values(ramp: str) -> None:
    values = [0, 1, 2, 3, 4, math.inf, math.nan, 9]
    lines = bars(values, height=3, top=4, ramp=ramp)
    assert len(lines) == 3
    assert all(len(line) == len(values) for line in lines)
    filled = [sum(ramp.index(line[i]) for line in lines) for i in range(len(values))]
    assert filled[:5] == sorted(filled[:5])
    assert filled[0] == 0
    full = 3 * (len(ramp) - 1)
    assert filled[4:] == [full, full, 0, full]
    assert set("".join(bars(values, height=3, top=0, ramp=ramp))) == {" "}


def test_sparklines() -> None:
    assert sparkline([]) == ""
    assert sparkline([None, math.nan]) == "  "
    assert sparkline([1.0, 1.0]) == "▄▄"
    assert sparkline([3.0, 1.0, None, 2.0]) == "█▁ ▅"
    assert sparkline([0.0, 1.0], ASCII) == ".#"


@pytest.mark.parametrize("top", [1e-6, 0.07, 1, 2.05, 9.99, 10, 12345, 1e32])
def test_ticks_are_few_round_and_inside(top: float) -> None:
    found = ticks(top)
    assert found[0] == 0
    assert 3 <= len(found) <= 7
    assert found[-1] <= top * (1 + 1e-9)
    assert found == sorted(set(found))
