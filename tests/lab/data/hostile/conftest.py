"""Broken and hostile files: each must be refused by name, and nothing else may happen.

Each case is one file or folder. The test files assert how many they have: pickles 110, CIFAR 70, archives 70,
images and folders 65, arrays 60, tables 50; more than 400 in all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reweigh.errors import DataError


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object], str], str]:
    """Calls `act`, which must raise a `DataError` that names `file` and leave every file as it was."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    def everything() -> dict[str, bytes | None]:
        return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(tmp_path.rglob("*"))}

    def check(act: Callable[[], object], file: str) -> str:
        before = everything()
        with pytest.raises(DataError) as caught:
            act()
        assert file in str(caught.value), f"{file} is not named in: {caught.value}"
        assert everything() == before
        return str(caught.value)

    return check
