"""The parts of a run: mismatches are refused, and torch's switches are restored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from finished import learnt
from reweigh.lab.methods.elr import ELR
from reweigh.lab.run import execute
from reweigh.lab.run.material import gather
from reweigh.lab.run.parts import net_of, objective_of, parts_of
from reweigh.lab.spec import Run

RUN = Run(data="digits", net="mlp-8", weighting="DM(0.5, 8)", iterations=2, evaluate_every=2, device="cpu")


def test_the_default_type_of_others_changes_nothing(tmp_path: Path) -> None:
    expected = learnt(execute(RUN, tmp_path / "plain"))
    torch.set_default_dtype(torch.float64)
    try:
        assert learnt(execute(RUN, tmp_path / "double")) == expected
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_warnings_of_others_about_determinism_stay_warnings(tmp_path: Path) -> None:
    def switches() -> tuple[bool, bool]:
        return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()

    within = list[tuple[bool, bool]]()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        for deterministic in (False, True):
            run = replace(RUN, deterministic=deterministic)
            execute(run, tmp_path, watch=lambda update: within.append(switches()))
            assert switches() == (True, True)
    finally:
        torch.use_deterministic_algorithms(False)
    assert within == [(True, True)] * RUN.iterations + [(True, False)] * RUN.iterations


@pytest.mark.parametrize(
    "weighting", ["ForwardSymmetric(0.4, 100)", "Tapered(ForwardSymmetric(0.4, num_classes=100), 1)"]
)
def test_a_weighting_that_counts_classes_counts_those_of_the_data(tmp_path: Path, weighting: str) -> None:
    with pytest.raises(ValueError, match=r"weighting .*100.* is for 100 classes, but digits has 10"):
        execute(replace(RUN, weighting=weighting), tmp_path)
    assert not list(tmp_path.iterdir())
    right = replace(RUN, weighting=weighting.replace("100", "10"))
    execute(right, tmp_path)
    execute(replace(right, threshold_set=0), tmp_path)  # a class more, which no label of the data is


def test_a_method_knows_the_schedule_of_the_learning_rate() -> None:
    run = replace(RUN, weighting=None, method="ELR", lr=0.5, schedule="step(0.1, at=[0.5])", iterations=4)
    material, device = gather(run), torch.device("cpu")
    taught = objective_of(run, material, parts_of(run, material, device).train, None, net_of(run, material, device))
    assert isinstance(taught.method, ELR)
    assert [taught.method.context.learning_rate(step) for step in range(4)] == pytest.approx([0.5, 0.5, 0.05, 0.05])
