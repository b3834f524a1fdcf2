"""The workers of criterion/test_distributed.py and test_auto.py, in a module that spawned processes can import."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from reweigh import CCE, DM, GCE, Auto, BinaryCriterion, Criterion, Weighting
from reweigh.lab.train.distributed import leave_group

CASES: dict[str, tuple[Weighting, str | None, float]] = {
    "batch": (DM(0.5, 8), "batch", 5e-7),
    "class": (DM(0.5, 8), "class", 5e-7),
    "plain": (CCE(), None, 0.0),
    "unit": (GCE(0.7), "unit", 1e-3),
}
# unequal shards: five rows on rank 0 and two on rank 1, which are ignored if `valid` is False
SHARDS = [slice(0, 5), slice(5, 7)]


def problem(valid: bool) -> tuple[nn.Linear, torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    net = nn.Linear(3, 4, dtype=torch.float64)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng, dtype=torch.float64))
    x = torch.randn(7, 3, generator=rng, dtype=torch.float64)
    target = torch.tensor([0, 1, 2, 3, -100, *((1, 2) if valid else (-100, -100))])
    return net, x, target


def gradients(net: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])


def worker(rank: int, port: int, folder: str) -> None:
    join(rank, port)
    torch.save(results_of(rank), Path(folder) / f"{rank}.pt")
    leave()


def auto_worker(rank: int, port: int, folder: str, batches: list[tuple[torch.Tensor, ...]]) -> None:
    """Save the gradients of this rank's 3 or 7 examples of each batch, and the state of `Auto` at the end."""
    join(rank, port)
    auto = Auto(30, 4, dtype=torch.float64, process_group=dist.group.WORLD).double()
    own, gradients = (slice(0, 3), slice(3, 10))[rank], []
    for z, labels, index in batches:
        logits = z[own].clone().requires_grad_()
        value = auto(logits, labels[own], index[own])
        gradients.append(torch.autograd.grad(value, logits)[0] / 2)  # as data-parallel training averages
    torch.save({"gradients": gradients, **auto.state_dict()}, Path(folder) / f"{rank}.pt")
    auto.process_group = None
    leave()


def join(rank: int, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    importlib.import_module("torch.distributed.nn")  # before init_process_group, because it stores a default group
    dist.init_process_group("gloo", rank=rank, world_size=2)


def leave() -> None:
    leave_group()
    threads = [task.read_text() for task in Path("/proc/self/task").glob("*/comm")]
    assert not [name for name in threads if "gloo" in name], threads  # a gloo thread left at exit can abort the process


def results_of(rank: int) -> dict[str, torch.Tensor]:
    group, results = dist.group.WORLD, {}
    for valid in (True, False):
        for case, (weighting, normalise, taper) in CASES.items():
            net, x, target = problem(valid)
            wrapped = DistributedDataParallel(net)
            criterion = Criterion(weighting, normalise=normalise, taper=taper, process_group=group)  # type: ignore[arg-type]
            value = criterion(wrapped(x[SHARDS[rank]]), target[SHARDS[rank]])
            value.backward()
            mean = value.detach().clone()
            dist.all_reduce(mean)
            results[f"{case}-{valid}"] = torch.cat((gradients(net), mean[None] / 2))
    net, x, target = problem(True)
    onehot = nn.functional.one_hot(target.clamp_min(0), 4).double()
    wrapped = DistributedDataParallel(net)
    BinaryCriterion(DM(0.5, 8), process_group=group)(wrapped(x[SHARDS[rank]]), onehot[SHARDS[rank]]).backward()
    results["binary"] = gradients(net)
    results["zero weights"] = zero_weight_results(group)
    return results


def zero_weight_results(group: object) -> torch.Tensor:
    """Return the values and gradients of batches with s = 0 everywhere, in one vector."""
    logits, target, zeros = torch.randn(3, 4), torch.tensor([0, 1, 2]), torch.zeros(3, 4)
    alone, ignored = torch.tensor([[900.0, -torch.inf, 0.0]]), torch.tensor([-100])
    results = []
    for weighting in (CCE(), DM(0.5, 8)):
        plain = Criterion(weighting, process_group=group)
        by_class = Criterion(weighting, weight=torch.zeros(4), process_group=group)
        for criterion, z, y, s in (
            *((plain, logits, target, torch.zeros(3)), (by_class, logits, target, None), (plain, logits, zeros, None)),
            *((plain, alone, ignored, None), (plain, torch.randn(1, 1), ignored, None)),
        ):
            z = z.clone().requires_grad_()
            value = criterion(z, y, sample_weight=s)
            results += [value.detach()[None], *torch.autograd.grad(value, z)]
    return torch.cat([each.flatten() for each in results])
