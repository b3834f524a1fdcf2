"""What only a GPU can show: no sync, CUDA graphs, the real compiler, offsets beyond 32 bits, 256 thousand classes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from float64_reference import OTHER
from reweigh.criterion import Criterion
from reweigh.linear import LinearCriterion
from reweigh.weightings import DM, MAE, Weighting

CASES: list[tuple[Weighting, Any]] = [
    (DM(0.5, 8), None),
    (DM(0.5, 8), "batch"),
    (DM(0.5, 8), "class"),
    (OTHER, "batch"),
]


@pytest.fixture(autouse=True)
def _release() -> Any:
    yield
    torch.cuda.empty_cache()


def draw(n: int, c: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    rng = torch.Generator("cuda").manual_seed(0)
    logits = torch.randn(n, c, generator=rng, device="cuda", dtype=dtype) * 2
    return logits, torch.randint(c, (n,), generator=rng, device="cuda")


def gradient(criterion: Any, logits: Tensor, target: Tensor) -> Tensor:
    leaf = logits.detach().requires_grad_()
    z = leaf.view_as(leaf)
    (result,) = torch.autograd.grad(criterion(z, target), z)
    return result


@pytest.mark.parametrize(("weighting", "normalise"), CASES)
@pytest.mark.parametrize("shape", [(64, 10), (100, 100), (1024, 1000)], ids=str)
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_no_sync_and_graphs(shape: tuple[int, int], weighting: Weighting, normalise: Any) -> None:
    logits, target = draw(*shape)
    criterion = Criterion(weighting, normalise=normalise)
    expected = gradient(criterion, logits, target)
    torch.cuda.set_sync_debug_mode("error")
    try:
        gradient(criterion, logits, target)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        gradient(criterion, logits, target)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        captured = gradient(criterion, logits, target)
    captured.fill_(float("nan"))
    graph.replay()
    if shape == (100, 100):  # in a single launch, but not in a graph
        torch.testing.assert_close(captured, expected, rtol=1e-6, atol=0)
    else:
        assert torch.equal(captured, expected)


@pytest.mark.parametrize(("weighting", "normalise"), CASES)
def test_the_real_compiler(weighting: Weighting, normalise: Any) -> None:
    torch.compiler.reset()
    logits, target = draw(256, 100)
    criterion = Criterion(weighting, normalise=normalise)
    leaf = logits.clone().requires_grad_()
    torch.compile(criterion, fullgraph=True)(leaf, target).backward()
    torch.testing.assert_close(leaf.grad, gradient(criterion, logits, target))


@pytest.mark.filterwarnings("ignore:TensorFloat32")
@pytest.mark.parametrize("weighting", [DM(0.5, 8), MAE(), OTHER], ids=repr)
def test_a_linear_layer_under_the_real_compiler(weighting: Weighting) -> None:
    torch.compiler.reset()
    layer = [torch.randn(n, 64, device="cuda").requires_grad_() for n in (500, 1000)]
    target = torch.randint(1000, (500,), device="cuda")
    criterion = LinearCriterion(weighting, chunk=200)
    found = []
    for loss in (torch.compile(criterion, fullgraph=True), criterion):
        value = loss(*layer, target)
        found.append((value, *torch.autograd.grad(value, layer)))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("normalise", [None, "batch"])
def test_offsets_beyond_32_bits(normalise: Any) -> None:
    n, c = 8704, 256_000
    if torch.cuda.mem_get_info()[0] < 16 * 2**30:
        pytest.skip("needs 16 GB of GPU memory")
    logits, target = draw(n, c, torch.bfloat16)
    criterion = Criterion(DM(0.5, 8), normalise=normalise, reduction="none")
    got = gradient(lambda z, y: criterion(z, y).sum(), logits, target)[-64:]
    assert n * c > 2**31
    exact = gradient(lambda z, y: criterion(z, y).sum(), logits[-64:].double(), target[-64:])
    if normalise == "batch":  # shares of 64 rows: the rest of the batch is another scale
        exact *= got.double().abs().sum() / exact.abs().sum()
    assert (got.double() - exact).norm() <= 4e-3 * exact.norm()


def test_two_devices() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    logits, target = draw(64, 10)
    for normalise in (None, "batch"):
        criterion = Criterion(DM(0.5, 8), normalise=normalise)
        there = gradient(criterion, logits.to("cuda:1"), target.to("cuda:1"))
        torch.testing.assert_close(there.cpu(), gradient(criterion, logits, target).cpu())


def test_linear_memory_grows_with_the_chunk() -> None:
    hidden, weight = (torch.randn(k, 256, device="cuda", dtype=torch.bfloat16).requires_grad_() for k in (4096, 64_000))
    target = torch.randint(64_000, (4096,), device="cuda")
    peaks = []
    _ = hidden @ weight[:8].T  # cuBLAS takes its workspace
    for chunk in (128, 256):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        LinearCriterion(MAE(), chunk=chunk)(hidden, weight, target).backward()
        peaks.append(torch.cuda.max_memory_allocated() - before)
        hidden.grad = weight.grad = None
    logits, gradients = 2 * 64_000, 2 * 256 * (64_000 + 4096)
    assert peaks[0] < gradients + 1.25 * 128 * logits
    assert peaks[1] - peaks[0] < 1.25 * 128 * logits
