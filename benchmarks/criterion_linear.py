"""Time the linear criterion at the size of a language model's head, and chunked cross entropies; see criterion.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from reweigh.linear import LinearCriterion
from reweigh.weightings import DM, MAE

TOKENS, WIDTH, CLASSES, CHUNK = 8192, 4096, 128256, 1024
Step = Callable[[], object]
Result = tuple[int, int, str, str, str, float, float]


def linear_rows(seconds: Callable[[Step], float]) -> Iterator[Result]:
    """Yield time and peak memory beyond the inputs; the memory includes the gradients."""
    rng = torch.Generator("cuda").manual_seed(0)
    hidden, weight = (
        torch.randn(rows, WIDTH, generator=rng, device="cuda", dtype=torch.bfloat16).mul_(WIDTH**-0.5).requires_grad_()
        for rows in (TOKENS, CLASSES)
    )
    target = torch.randint(CLASSES, (TOKENS,), generator=rng, device="cuda")

    def ours(criterion: Callable[..., Tensor]) -> Step:
        def step() -> None:
            torch.autograd.grad(criterion(hidden, weight, target), (hidden, weight))

        return step

    steps: dict[str, Step] = {
        "linear MAE": ours(LinearCriterion(MAE())),
        "linear DM, batch": ours(LinearCriterion(DM(0.5, 8))),
        "linear DM, batch, compiled": ours(torch.compile(LinearCriterion(DM(0.5, 8)), dynamic=False)),
        "linear cross entropy, chunked and compiled": chunked_cross_entropy(hidden, weight, target),
    }
    if hasattr(torch.nn, "LinearCrossEntropyOptions"):
        steps["linear cross entropy, torch's chunked"] = torch_chunked(hidden, weight, target)
    if find_spec("liger_kernel") is not None:
        liger = import_module("liger_kernel.ops.fused_linear_cross_entropy").LigerFusedLinearCrossEntropyFunction
        steps["linear Liger"] = lambda: torch.autograd.grad(liger.apply(hidden, weight, target)[0], (hidden, weight))
    for name, step in steps.items():
        try:
            step()
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            step()
            extra = (torch.cuda.max_memory_allocated() - before) / 1e9
            row = (TOKENS, CLASSES, "bfloat16", name, "eager", round(1e3 * seconds(step), 5), round(extra, 3))
        except Exception as error:  # another library may fail; continue without it
            print(name, "failed:", repr(error)[:300])
            continue
        yield row
        torch.cuda.empty_cache()


def chunked_cross_entropy(hidden: Tensor, weight: Tensor, target: Tensor) -> Step:
    """Return a step that computes gradients in the forward pass, one compiled chunk at a time."""

    def loss(h: Tensor, w: Tensor, y: Tensor) -> Tensor:
        return cross_entropy((h @ w.T).float(), y, reduction="sum")

    chunk = torch.compile(torch.func.grad_and_value(loss, argnums=(0, 1)), dynamic=False)

    def step() -> None:
        with torch.no_grad():
            of_weight, of_hidden = torch.zeros_like(weight), torch.empty_like(hidden)
            for start in range(0, TOKENS, CHUNK):
                part = slice(start, start + CHUNK)
                (of_hidden[part], of_chunk), _ = chunk(hidden.detach()[part], weight.detach(), target[part])
                of_weight += of_chunk
            of_weight /= TOKENS
            of_hidden /= TOKENS

    return step


def torch_chunked(hidden: Tensor, weight: Tensor, target: Tensor) -> Step:
    options = torch.nn.LinearCrossEntropyOptions()

    def step() -> None:
        value = torch.nn.functional.linear_cross_entropy(hidden, weight, target, options=options)
        torch.autograd.grad(value, (hidden, weight))

    return step
