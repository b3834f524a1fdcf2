"""The benchmarks: each tells what it takes."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
ASKED = [path for path in sorted(FOLDER.glob("*.py")) if "argparse" in path.read_text(encoding="utf-8")]
OWN = {path.stem for path in FOLDER.glob("*.py")}


@pytest.mark.parametrize("path", ASKED, ids=lambda path: path.stem)
def test_it_tells_what_it_takes(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    try:
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(path), run_name="__main__")
    finally:
        for name in OWN & sys.modules.keys():
            del sys.modules[name]
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage:")
