"""Losses and methods of a space are built once, on the data, before the first trial: a wrong value fails no trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from reweigh.lab.run.material import Material, gather
from reweigh.lab.run.parts import net_of, objective_of, parts_of
from reweigh.lab.search.plan import Plan, cannot_be
from reweigh.lab.spec import Run

BESIDE = ("loss", "method", "lr", "schedule", "momentum", "weight_decay", "batch_size")
"""Fields that make no difference to what a run trains on."""


def check_buildable(plan: Plan, where: Mapping[str, Any]) -> None:
    """Refuse a plan some of whose losses or methods cannot be built; the data are loaded once for runs that share them.

    Args:
        plan: of a search.
        where: fields of `Run` that say where or how fast, such as data_root.
    """
    loaded: tuple[dict[str, Any], Material] | None = None
    for run in _different(plan, where):
        read = {name: value for name, value in run.to_mapping().items() if name not in BESIDE}
        if loaded is None or loaded[0] != read:
            loaded = read, gather(run)
        material = loaded[1]
        try:
            _build(run, material)
        except (TypeError, ValueError) as error:
            raise cannot_be(plan, error) from error


def _different(plan: Plan, where: Mapping[str, Any]) -> Iterator[Run]:
    """The runs at the corners of the space that differ in what can be refused here; weightings need no data."""
    seen = set()
    for corner in plan.space.corners():
        run = plan.run_of(corner, {**where, "device": "cpu"})
        key = run.loss, run.method, run.net, run.batch_size, run.sampler
        if run.weighting is None and key not in seen:
            seen.add(key)
            yield run


def _build(run: Run, material: Material) -> None:
    device = torch.device("cpu")
    parts = parts_of(run, material, device)
    objective_of(run, material, parts.train, parts.trusted, net_of(run, material, device))
