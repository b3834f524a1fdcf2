"""A study that trains nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import optuna
import pytest

from reweigh.lab.search.plan import Plan, plan_search
from reweigh.lab.search.storage import open_storage, silence_optuna, sqlite_url
from reweigh.lab.search.study import open_study

FIELDS = {"data": "digits", "net": "mlp-32", "weighting": "CCE", "noise": "symmetric", "rate": 0.4, "iterations": 90}

Make = Callable[..., tuple[optuna.Study, Plan]]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence_optuna()


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """The study of a space over the learning rate, in an SQLite file."""

    def build(space: str = "lr=0.01..1:log", trials: int | None = 6, prune: bool = False) -> tuple[optuna.Study, Plan]:
        plan = plan_search(FIELDS, space, trials=trials, prune=prune)
        return open_study(plan, open_storage(sqlite_url(tmp_path / "study.db"))), plan

    return build
