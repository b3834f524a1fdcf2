"""Tiny random models and data for the tests of integrations, in a module that spawned processes can import."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from reweigh import CCE, DM, GCE, MAE, Weighting

os.environ.setdefault("HF_HUB_OFFLINE", "1")

VOCABULARY = 23
WEIGHTINGS: dict[str, Weighting] = {"CCE": CCE(), "MAE": MAE(), "GCE": GCE(0.7), "DM": DM(0.5, 8)}


def llama(seed: int = 0, **settings: Any) -> Any:
    """Return a Llama of two layers with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=VOCABULARY, pad_token_id=0, initializer_range=0.3, **{**sizes, **settings})
    return LlamaForCausalLM(config)


def token_data(n: int = 16, length: int = 10) -> list[dict[str, Any]]:
    """Return n sequences whose labels ignore prompts of different lengths."""
    rng = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, VOCABULARY, (n, length), generator=rng)
    labels = tokens.clone()
    for row, prompt in enumerate(torch.randint(1, length - 2, (n,), generator=rng).tolist()):
        labels[row, :prompt] = -100
    return [{"input_ids": x, "labels": y} for x, y in zip(tokens, labels, strict=True)]


def arguments(folder: Path, **settings: Any) -> Any:
    """Return arguments of a `Trainer` on a CPU: plain SGD, two steps of eight sequences."""
    from transformers import TrainingArguments

    fixed = {
        "per_device_train_batch_size": 8,
        "max_steps": 2,
        "learning_rate": 0.5,
        "optim": "sgd",
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "train_sampling_strategy": "sequential",
    }
    return TrainingArguments(output_dir=str(folder), **{**fixed, **settings})


def parameters_of(model: nn.Module) -> Tensor:
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def join(rank: int, port: int) -> None:
    """Set the environment of one of two processes on a CPU, as `torchrun` does."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    torch.set_num_threads(1)


def two_processes(rank: int, port: int, folder: str) -> None:
    """Train as rank of two, save the parameters; then save the gradients of a sharded model."""
    join(rank, port)
    import torch.distributed as dist

    from integrations.test_transformers import trained

    settings = {"ddp_backend": "gloo"}
    results = {}
    for name, route in (("CCE", "loss"), ("MAE", "loss"), ("GCE", "loss"), ("DM", "loss"), ("GCE", "fused")):
        results[name, route] = trained(Path(folder), WEIGHTINGS[name], 4, 1, route, **settings)  # type: ignore[arg-type]
    parameters, auto, _ = trained_with_auto(Path(folder), 4, **settings)
    results["auto"] = torch.cat((parameters, *(x.flatten().float() for x in auto.state_dict().values())))
    torch.save(results, Path(folder) / f"{rank}.pt")
    for case in ("with the model", "alone"):
        gradients = sharded_gradients(rank, case)
        if rank == 0:
            torch.save(gradients, Path(folder) / f"{case}.pt")
    dist.destroy_process_group()


def sharded_gradients(rank: int, case: str) -> dict[str, Tensor]:
    """Return the gradients of a model with a fused head that FSDP2 shards, with the model or alone."""
    from torch.distributed.fsdp import fully_shard

    from reweigh.integrations.transformers import fuse_head

    rows = token_data(4)[2 * rank : 2 * rank + 2]
    batch = {name: torch.stack([row[name] for row in rows]) for name in ("input_ids", "labels")}
    model = fuse_head(llama(), GCE(0.7))
    if case == "alone":
        fully_shard(model.lm_head)
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    (2 * model(**batch, num_items_in_batch=10).loss).backward()  # FSDP2 averages
    return {name: each.grad.full_tensor() for name, each in model.named_parameters()}


def bert(seed: int = 0) -> Any:
    """Return a classifier of sequences with random weights."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return BertForSequenceClassification(BertConfig(vocab_size=VOCABULARY, num_labels=3, **sizes, **still))


def sentences(n: int = 16) -> list[dict[str, Any]]:
    """Return n sequences that contain their class, with labels of which every fourth is wrong."""
    rng = torch.Generator().manual_seed(2)
    clean = torch.arange(n) % 3
    tokens = torch.randint(3, VOCABULARY, (n, 6), generator=rng)
    tokens[:, 2] = clean
    labels = torch.where(torch.arange(n) % 4 == 0, (clean + 1) % 3, clean)
    return [{"input_ids": x, "labels": y} for x, y in zip(tokens, labels, strict=True)]


def trained_with_auto(folder: Path, size: int, resume: bool = False, **settings: Any) -> tuple[Any, Any, Any]:
    """Return the parameters after training with `Auto` and a recorder, and both."""
    from transformers import Trainer

    from reweigh import Auto, Indexed, Recorder
    from reweigh.integrations.transformers import weighted

    auto, recorder, model = Auto(16, 3), Recorder(16), bert()
    fixed = {"per_device_train_batch_size": size, "max_steps": 4, "remove_unused_columns": False}
    trainer = weighted(Trainer, auto, "classification", recorder=recorder)(
        model, arguments(folder, **{**fixed, **settings}), train_dataset=Indexed(sentences()), eval_dataset=sentences(5)
    )
    trainer.train(resume_from_checkpoint=resume)
    assert trainer.evaluate()["eval_loss"] > 0
    return parameters_of(model), auto, recorder
