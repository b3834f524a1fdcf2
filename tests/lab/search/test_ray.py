"""The same study through Ray Tune, on a local cluster of two workers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reweigh.errors import DataError
from reweigh.lab.search import plan_search, search

FIELDS: dict[str, Any] = {
    "data": "digits",
    "net": "mlp-8",
    "noise": "symmetric",
    "rate": 0.4,
    "iterations": 20,
    "batch_size": 32,
    "evaluate_every": 10,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray warns about what Ray does
        ray = pytest.importorskip("ray", reason="Ray is not installed (pip install 'reweigh[ray]')")
        ray.init(num_cpus=2, object_store_memory=2**28, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("cluster")
def test_ray_and_processes_give_equal_results(tmp_path: Path) -> None:
    plan = plan_search(FIELDS, "DM(lam={0, 0.5}, beta={2, 8})", seeds=(0, 1))
    here = search(plan, tmp_path / "here", where={"device": "cpu"})
    there = search(plan, tmp_path / "there", on="ray", workers=2, where={"device": "cpu"}, beat=1, grace=30)
    assert there.to_csv() == here.to_csv()
    assert there.finals == here.finals


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("cluster")
def test_missing_data_are_reported(tmp_path: Path) -> None:
    plan = plan_search({**FIELDS, "data": str(tmp_path / "none.csv")}, "DM(lam={0, 0.5}, beta=2)", seeds=())
    with pytest.raises(DataError, match=r"none\.csv: no such file"):
        search(plan, tmp_path, on="ray", workers=2, where={"device": "cpu"}, beat=1, grace=30)
