"""Time a training step of a language model with different heads: the stock loss, Liger, TRL's fused head and ours.

    python benchmarks/language_model.py --out benchmarks/results/language-model-h200.json     # on a GPU
    python benchmarks/language_model.py --tiny                                                # on a CPU, to test it

A Llama of 1.2 billion parameters with random weights, 8 x 2048 tokens, vocabulary 128,256, bfloat16: forward and
backward pass, tokens per second and peak memory. A package that is not installed is left out, with a line.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from provenance import provenance
from torch import Tensor

from reweigh import GCE, MAE

BILLION = {
    "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8,
}  # fmt: skip
TINY = {
    "vocab_size": 512, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
}  # fmt: skip


def heads() -> Iterator[tuple[str, Callable[[Any, dict[str, Tensor]], Tensor], Callable[[Any], object]]]:
    """Yield the name of a head, its loss of a model and a batch, and what it does to the model before."""
    from reweigh.integrations.transformers import fuse_head, loss_for

    def own(model: Any, batch: dict[str, Tensor]) -> Tensor:
        return model(**batch).loss  # type: ignore[no-any-return]

    def of_logits(model: Any, batch: dict[str, Tensor]) -> Tensor:
        return loss_for(GCE(0.7), "causal_lm")(model(input_ids=batch["input_ids"]), batch["labels"])

    yield "stock loss", own, lambda model: None
    yield "loss_for(GCE(0.7))", of_logits, lambda model: None
    yield "fuse_head(GCE(0.7))", own, lambda model: fuse_head(model, GCE(0.7))
    yield "fuse_head(MAE())", own, lambda model: fuse_head(model, MAE())
    if find_spec("trl") is None:
        print("trl is not installed: left out")
    else:
        from trl.trainer.utils import add_fused_lm_head

        def dft(model: Any, batch: dict[str, Tensor]) -> Tensor:
            log_p: Tensor = model(**batch, fused_lm_head=True).log_probs
            return -(log_p.exp().detach() * log_p).sum() / (batch["labels"][:, 1:] != -100).sum()

        yield "TRL's fused head, DFT", dft, add_fused_lm_head
    if find_spec("liger_kernel") is None:
        print("liger-kernel is not installed: left out")
    else:
        liger = import_module("liger_kernel.transformers").apply_liger_kernel_to_llama
        yield "Liger", own, lambda model: liger(model=model)


def measure(
    loss: Callable[[Any, dict[str, Tensor]], Tensor],
    prepare: Callable[[Any], object],
    sizes: dict[str, int],
    shape: tuple[int, int],
    repeats: int,
) -> dict[str, float | None]:
    """Return tokens per second, from the median step, and the peak memory of a step in GB (of a GPU only)."""
    from transformers import LlamaConfig, LlamaForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(LlamaConfig(**sizes, dtype=torch.bfloat16)).to(device, torch.bfloat16).train()
    prepare(model)
    ids = torch.randint(sizes["vocab_size"], shape, device=device)
    batch, seconds = {"input_ids": ids, "labels": ids.clone()}, []
    for step in range(repeats + 2):
        if step == 1 and device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        loss(model, batch).backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else None
    return {"tokens_per_second": round(ids.numel() / statistics.median(seconds[2:]), 1), "peak_gb": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a training step of a language model with different heads.")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    parser.add_argument("--tiny", action="store_true", help="a tiny model and 2 x 16 tokens, to test this program")
    parser.add_argument("--repeats", type=int, default=10, help="timed steps")
    options = parser.parse_args()
    sizes, shape = (TINY, (2, 16)) if options.tiny else (BILLION, (8, 2048))
    results: dict[str, object] = {}
    for name, loss, prepare in heads():
        try:
            results[name] = row = measure(loss, prepare, sizes, shape, options.repeats)
        except torch.OutOfMemoryError:
            results[name] = "out of memory"
            print(f"{name:24} out of memory")
        else:
            peak = "" if row["peak_gb"] is None else f"  {row['peak_gb']:6.2f} GB"
            print(f"{name:24} {row['tokens_per_second']:10,.0f} tokens/s{peak}", flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    if options.out:
        content = {"model": sizes, "tokens": shape, "provenance": provenance(), "results": results}
        options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
