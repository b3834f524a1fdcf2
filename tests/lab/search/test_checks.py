"""Losses and methods with invalid values are refused before the first trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reweigh.lab.search import plan_search, search
from reweigh.lab.search.checks import check_buildable

FIELDS: dict[str, Any] = {"data": "digits", "net": "mlp-8", "noise": "symmetric", "rate": 0.4, "iterations": 60}
CPU = {"device": "cpu"}


@pytest.mark.parametrize(
    ("space", "about"),
    [
        ("OHEM(keep={0.5, 2})", "an invalid run: OHEM's keep is 2"),
        ("NCE_RCE(alpha={1, -1})", "an invalid run: .*alpha"),
        ("NCE_RCE(alpha=-1..1)", "an invalid run: .*alpha"),
        ("CCE | OHEM(keep=0.5..2)", "an invalid run: OHEM's keep is 2"),
        ("ActiveBias(form={'variance', 'far'}, warm_up=0)", "an invalid run: ActiveBias's form is 'far'"),
        ("ActiveBias(warm_up={0, 1000})", "an invalid run: ActiveBias's warm_up is 1000"),
        ("Forward(T={symmetric(0.2), symmetric(2)})", "an invalid run: "),
    ],
)
def test_invalid_values_are_refused(space: str, about: str, tmp_path: Path) -> None:
    plan = plan_search(FIELDS, space, seeds=(), trials=2 if ".." in space else None)
    with pytest.raises(ValueError, match=about):
        search(plan, tmp_path, where=CPU)
    assert not list(tmp_path.rglob("run.json"))


@pytest.mark.parametrize(
    "space",
    [
        "OHEM(keep={0.5, 1}) | CCE",
        "ActiveBias(form={'variance', 'closeness'}, warm_up=0), batch_size={32, 64}",
        "MetaWeightNet, lr={0.1, 0.2}",
        "Forward(T={symmetric(0.2), symmetric(0.4)})",
        "BootstrapHard(beta={linear(1, 0.5), 0.8})",
        "GCE(q={0.2, 0.7})",
    ],
)
def test_valid_values_are_accepted(space: str) -> None:
    check_buildable(plan_search(FIELDS, space), CPU)


def test_nets_prepare_the_data_differently(tmp_path: Path) -> None:
    x, y = np.zeros((40, 32, 32, 3), np.uint8), np.arange(40) % 2
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    fields = {"data": str(tmp_path / "own.npz"), "iterations": 2, "batch_size": 8}
    check_buildable(plan_search(fields, "OHEM(keep=0.5), net={mlp-8, resnet20}"), CPU)
