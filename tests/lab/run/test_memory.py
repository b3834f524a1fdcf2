"""The estimate of a run's memory, and the refusal of what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reweigh.lab.nets.registry import build
from reweigh.lab.run import execute, memory
from reweigh.lab.spec import Run


def net_for(name: str, side: int) -> torch.nn.Module:
    return build(name, 10, generator=torch.Generator(), large=side >= 96)


def test_activations_grow_with_the_image_and_shrink_with_the_stem() -> None:
    small, _ = memory.activations(net_for("resnet20", 32), (3, 32, 32))
    medium, _ = memory.activations(net_for("resnet20", 64), (3, 64, 64))
    large, largest = memory.activations(net_for("resnet20", 224), (3, 224, 224))
    assert medium == pytest.approx(4 * small, rel=0.05)
    assert large < 4 * medium  # 12 times the pixels, but a stem that leaves a sixteenth of them
    assert largest < large / 4


def test_measuring_changes_nothing() -> None:
    net, other = net_for("cifarnet", 32), net_for("cifarnet", 32)
    state = torch.get_rng_state()
    memory.activations(net, (3, 32, 32))
    assert net.training
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(net.state_dict()[key], value) for key, value in other.state_dict().items())


@pytest.mark.parametrize("free", [2**20, 100 * 2**20])
def test_a_run_that_does_not_fit_is_refused_with_a_batch_that_does(tmp_path, monkeypatch, free) -> None:
    np.savez(tmp_path / "t.npz", x=np.zeros((640, 32, 32, 3), np.uint8), y=np.arange(640) % 2)
    monkeypatch.setattr(memory, "available", lambda device: free)
    run = Run(data=str(tmp_path / "t.npz"), net="resnet20", weighting="CCE", iterations=1, batch_size=512)
    with pytest.raises(MemoryError, match=r"net 'resnet20' with batches of 512 needs about 1\.\d GB") as caught:
        execute(run, tmp_path / "runs")
    assert ("use --batch-size 32, a smaller --image-size" in str(caught.value)) == (free > 2**21)
    assert not (tmp_path / "runs").exists()


def test_the_memory_of_this_machine_is_known() -> None:
    free = memory.available(torch.device("cpu"))
    assert free is None or free > 2**20
