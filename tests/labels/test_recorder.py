"""Recorder: a training loop's record, in one process and several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reweigh import Recorder, find_suspects

N, C = 300, 3


def batches(epochs: int, dtype: torch.dtype = torch.float32) -> tuple[np.ndarray[Any, Any], list[tuple[Any, ...]]]:
    """Return the true classes, and batches (index, logits, labels) of a model that knows them better over time."""
    rng = torch.Generator().manual_seed(0)
    truth = torch.randint(0, C, (N,), generator=rng)
    wrong = torch.rand(N, generator=rng) < 0.2
    labels = torch.where(wrong, (truth + 1) % C, truth)
    made = []
    for epoch in range(epochs):
        for index in torch.randperm(N, generator=rng).split(64):
            noise = torch.randn(len(index), C, generator=rng)
            logits = (1.0 + epoch) * torch.eye(C)[truth[index]] * 2 + noise
            made.append((index, logits.to(dtype), labels[index]))
    return truth.numpy(), made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_loop_is_recorded(dtype: torch.dtype) -> None:
    truth, made = batches(4, dtype)
    record = Recorder(N)
    for index, logits, labels in made:
        record.update(index, logits.requires_grad_(), labels)
    suspects = record.suspects(bootstrap=5)
    wrong = suspects.given != truth
    assert suspects.index.tolist() == list(range(N))
    assert wrong[suspects.issue].mean() > 0.9
    assert (suspects.suggested[suspects.issue] == truth[suspects.issue]).mean() > 0.9
    assert suspects.noise is not None
    assert suspects.noise.rate == pytest.approx(wrong.mean(), abs=0.05)


def test_it_equals_the_gaps_of_every_visit() -> None:
    _, made = batches(3)
    record = Recorder(N)
    gaps, rivals, labels = np.zeros((N, 3)), np.zeros((N, 3), int), np.zeros(N, int)
    visits = np.zeros(N, int)
    for index, logits, given in made:
        record.update(index, logits, given)
        for i, row, y in zip(index.tolist(), logits.numpy(), given.tolist(), strict=True):
            others = np.where(np.arange(C) == y, -np.inf, row)
            gaps[i, visits[i]], rivals[i, visits[i]], labels[i] = row[y] - others.max(), others.argmax(), y
            visits[i] += 1
    expected = find_suspects(labels, logit_gaps=gaps.astype(np.float16), rivals=rivals, bootstrap=5)
    np.testing.assert_allclose(record.suspects(bootstrap=5).score, expected.score, rtol=1e-6)


def test_repeated_and_missing_examples() -> None:
    record = Recorder(4)
    index = torch.tensor([0, 2, 0])
    logits = torch.tensor([[1.0, 0.0], [0.0, 3.0], [5.0, 0.0]])
    record.update(index, logits, torch.tensor([0, 0, 0]))
    record.update(torch.tensor([3]), torch.zeros(1, 2), torch.tensor([-100]))  # an ignored label
    with pytest.warns(UserWarning, match="2 of 4 examples were never recorded"):
        suspects = record.suspects(sources=list("abcd"), bootstrap=1)
    assert suspects.index.tolist() == [0, 2]
    assert suspects.sources == ("a", "c")
    sigmoid = torch.tensor([1.0, 5.0]).sigmoid().mean()
    assert suspects.p_given[0] == pytest.approx(float(sigmoid), abs=1e-6)


def test_a_record_resumes_from_its_state() -> None:
    _, made = batches(4)
    straight, first, second = Recorder(N), Recorder(N), Recorder(N)
    half = len(made) // 2
    for batch in made:
        straight.update(*batch)
    for batch in made[:half]:
        first.update(*batch)
    second.load_state_dict(first.state_dict())
    for batch in made[half:]:
        second.update(*batch)
    np.testing.assert_array_equal(second.suspects(bootstrap=1).score, straight.suspects(bootstrap=1).score)
    with pytest.raises(ValueError, match="the state has 300 examples, this recorder 5"):
        Recorder(5).load_state_dict(first.state_dict())


def _rank(rank: int, folder: str) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    assert dist.group.WORLD is not None
    _, made = batches(4)
    record = Recorder(N, process_group=dist.group.WORLD)
    for index, logits, labels in made:
        half = slice(rank, None, 2)
        record.update(index[half], logits[half], labels[half])
    found = record.suspects(bootstrap=1)
    np.savez(f"{folder}/{rank}.npz", score=found.score, suggested=found.suggested)
    dist.destroy_process_group()


def test_two_processes_give_the_record_of_one(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(_rank, (str(tmp_path),), nprocs=2)
    _, made = batches(4)
    record = Recorder(N)
    for batch in made:
        record.update(*batch)
    one = record.suspects(bootstrap=1)
    for rank in (0, 1):
        with np.load(tmp_path / f"{rank}.npz") as found:
            np.testing.assert_allclose(found["score"], one.score, rtol=1e-9)
            np.testing.assert_array_equal(found["suggested"], one.suggested)


def test_bad_input_is_refused() -> None:
    record, logits = Recorder(3), torch.zeros(2, 4)
    zeros = torch.zeros(2, dtype=torch.long)
    with pytest.raises(ValueError, match=r"must be \(B,\), \(B, C\) and \(B,\), not \(1,\), \(2, 4\) and \(2,\)"):
        record.update(zeros[:1], logits, zeros)
    with pytest.raises(ValueError, match="nothing was recorded"):
        record.suspects()
    record.update(zeros, logits, zeros)
    with pytest.raises(ValueError, match="logits has 3 classes; earlier batches had 4"):
        record.update(zeros, torch.zeros(2, 3), zeros)
    record.update(zeros[:1], logits[:1], torch.tensor([1]))
    with pytest.raises(ValueError, match="example 0 has two labels"):
        record.suspects()
    with pytest.raises(ValueError, match="num_examples is 0"):
        Recorder(0)
    outside = Recorder(3)
    outside.update(torch.tensor([0, 3]), logits, zeros)
    with pytest.raises(ValueError, match="index must be from 0 to 2"):
        outside.suspects()
