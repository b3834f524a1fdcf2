"""Values that `Run` accepts besides strings, and its error messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reweigh import DM
from reweigh.lab import Run


def test_paths_are_accepted_as_text() -> None:
    named: Any = {"data": Path("a.csv"), "test_data": Path("b.csv"), "data_root": Path("c")}
    told: Any = {key: str(value) for key, value in named.items()}
    assert Run(**named, net="linear", weighting="CCE") == Run(**told, net="linear", weighting="CCE")


def test_a_weighting_object_is_refused_with_its_text() -> None:
    weighting: Any = DM(0.5, 8)
    with pytest.raises(TypeError, match=r"expected a string: 'DM\(lam=0.5, beta=8\)'"):
        Run(data="digits", net="linear", weighting=weighting)
