"""Every benchmark with options has a help text."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
WITH_OPTIONS = [path for path in sorted(FOLDER.glob("*.py")) if "argparse" in path.read_text(encoding="utf-8")]
MODULES = {path.stem for path in FOLDER.glob("*.py")}


@pytest.mark.parametrize("path", WITH_OPTIONS, ids=lambda path: path.stem)
def test_help(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    try:
        with pytest.raises(SystemExit) as error:
            runpy.run_path(str(path), run_name="__main__")
    finally:
        for name in MODULES & sys.modules.keys():
            del sys.modules[name]
    assert error.value.code == 0
    assert capsys.readouterr().out.startswith("usage:")
