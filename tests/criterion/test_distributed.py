"""Two processes under DistributedDataParallel agree with one process to 1e-12 in float64."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from reweigh import DM, BinaryCriterion, Criterion
from two_ranks import CASES, gradients, problem, worker


@pytest.mark.skipif(not dist.is_available(), reason="this torch has no distributed package")
def test_two_ranks_equal_one_process(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(worker, args=(port, str(tmp_path)), nprocs=2)  # type: ignore[no-untyped-call]
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    for valid in (True, False):
        for case, (weighting, normalise, taper) in CASES.items():
            net, x, target = problem(valid)
            value = Criterion(weighting, normalise=normalise, taper=taper)(net(x), target)  # type: ignore[arg-type]
            value.backward()
            expected = torch.cat((gradients(net), value.detach()[None]))
            for rank in ranks:
                torch.testing.assert_close(rank[f"{case}-{valid}"], expected, rtol=1e-12, atol=1e-12)
    net, x, target = problem(True)
    BinaryCriterion(DM(0.5, 8))(net(x), nn.functional.one_hot(target.clamp_min(0), 4).double()).backward()
    for rank in ranks:
        torch.testing.assert_close(rank["binary"], gradients(net), rtol=1e-12, atol=1e-12)
        assert torch.equal(rank["zero weights"], torch.zeros_like(rank["zero weights"]))
