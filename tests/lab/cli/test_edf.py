from __future__ import annotations

from pathlib import Path

import pytest


def test_curves_side_by_side_with_their_numbers(reweigh) -> None:
    ended = reweigh("edf", "DM(0.5, 12)", "GCE", "CCE")
    assert ended.code == 0
    lines = ended.stdout.splitlines()
    assert lines[0].split("  ")[0] == ""
    assert all(name in lines[0] for name in ("DM(0.5, 12)", "GCE", "CCE"))
    assert "█" in ended.stdout
    row = next(line for line in lines if line.startswith("DM(0.5, 12)"))
    assert row.split()[2:5] == ["0.3333", "44.36", "1258"]
    assert row.endswith("no")


def test_json_has_numbers_and_curve(reweigh) -> None:
    dm, mae = reweigh("edf", "DM(2, -3)", "MAE", "--json").json["curves"]
    assert dm["mode"] == [0.0, 1.0]
    assert not dm["bounded"]
    assert dm["objective"] == [0.0, None]  # JSON has no infinity
    assert mae["bounded"]
    assert mae["objective"] == pytest.approx([0, 1])
    assert mae["variance"] == pytest.approx(1 / 45)
    assert max(mae["density"]) == pytest.approx(1.5)


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_files(reweigh, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"curves{suffix}"
    ended = reweigh("edf", "CCE", "Beta(0.5, 0.5)", "-o", file)
    assert ended.stdout.splitlines()[-1] == str(file)
    assert file.read_bytes()[:4] in (b"<svg", b"\x89PNG")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["DMM(1, 2)"], "did you mean 'DM'"),
        (["DM(0.5, linear(2, 16))"], "a schedule has no single curve"),
        (["DM(-1, 2)"], "lam must be"),
        (["CCE", "--taper", "-1"], "taper"),
        (["CCE", "-o", "curve.pdf"], "ends in .svg or .png"),
    ],
)
def test_wrong_options(reweigh, line: list[str], message: str) -> None:
    ended = reweigh("edf", *line)
    assert ended.code == 2
    assert message in ended.stderr
