"""The base class of most methods, and functions that they share."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from reweigh.checks import integer
from reweigh.lab.batches import Batch
from reweigh.lab.methods.protocol import Context
from reweigh.margin import at_least_float32


class BaseMethod:
    """Everything of a `Method` except its loss: trains the context's net, which also predicts.

    Subclasses may set

        saved           attributes that belong into a checkpoint: tensors, numbers, texts, None, lists or dicts of them,
                        or anything with a state dict
        times           arguments that count epochs or iterations of the run, with the least value of each; they shrink
                        in a shorter run, unlike lengths of other trainings (`mentor_steps`) and shares (`burn_in`)
        capture_key     step -> key: iterations with equal keys can replay one CUDA graph (`reweigh.lab.train.captured`)
        prepare         (step, size): compute what the host decides for an iteration, before its graph is replayed
        uncaptured      the reason why iterations cannot be captured
        posteriors      () -> the arrays of `reweigh.lab.record.posteriors.Posteriors`
        reads_features  True if the loss calls parts of the net, which is then not compiled as one
    """

    saved: ClassVar[tuple[str, ...]] = ()
    times: ClassVar[dict[str, int]] = {}
    trainable: nn.Module
    predictor: nn.Module

    def __init__(self, context: Context) -> None:
        self.context = context
        self.net = self.trainable = self.predictor = context.net

    def weights(self, logits: Tensor, target: Tensor, index: Tensor, step: int) -> Tensor | None:
        return None

    def columns(self, clean: Tensor | None) -> dict[str, Any]:
        return {}

    def epoch_end(self, epoch: int) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {name: _state_of(getattr(self, name)) for name in self.saved}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self.saved:
            own, saved = getattr(self, name), state[name]
            if isinstance(own, torch.optim.Optimizer):
                here = [{key: group[key] for key in ("capturable",) if key in group} for group in own.param_groups]
                own.load_state_dict(saved)
                for group, how in zip(own.param_groups, here, strict=True):
                    group.update(how)  # the state may come from another device
            elif hasattr(own, "load_state_dict"):
                own.load_state_dict(saved)
            else:
                setattr(self, name, saved.to(self.context.device) if isinstance(saved, Tensor) else saved)


def constant_graph(method: object, step: int) -> Hashable:
    """`capture_key` of a method whose iterations can all replay the same graph."""
    return None


def _state_of(value: Any) -> Any:
    return value.state_dict() if hasattr(value, "state_dict") else value


def check_start_epoch(context: Context, name: str, epoch: int) -> int:
    """Return a number of epochs after which a method changes its loss; it must lie within the run."""
    start: int = integer(0)(name, epoch)
    if start * context.epoch >= context.total:
        raise ValueError(f"{name} is {start} epochs, but the run has {context.total / context.epoch:g}")
    return start


def row_losses(logits: Tensor, target: Tensor) -> Tensor:
    """Return (B,) cross entropies in float32 or better."""
    return functional.cross_entropy(at_least_float32(logits), target, reduction="none")


def gradient_norm(v: Tensor, losses: Tensor) -> Tensor:
    """Return 2 v (1 - p), the L1 norm of the gradient of v times the cross entropy, with p = exp(-loss)."""
    return -2 * v * (-losses).expm1()


@contextmanager
def without_gradients() -> Iterator[None]:
    """Disable gradients; afterwards, clear autocast's cache."""
    with torch.no_grad():
        yield
    # torch before 2.11 would use the copies of weights that autocast made here, without gradients, in later passes
    torch.clear_autocast_cache()


def without_autocast(loss: Tensor) -> torch.autocast:
    """Disable autocast for a backward pass within an iteration, which it would round."""
    return torch.autocast(loss.device.type, enabled=False)


@contextmanager
def eval_mode(net: nn.Module) -> Iterator[None]:
    """Disable gradients and put the net in evaluation mode."""
    was = net.training
    net.eval()
    try:
        with without_gradients():
            yield
    finally:
        net.train(was)


def logits_of(net: nn.Module, batches: Iterable[Batch]) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits (N, C) in evaluation mode, targets and indices of all examples of `batches`."""
    with eval_mode(net):
        parts = [(at_least_float32(net(batch.inputs)), batch.target, batch.index) for batch in batches]
    logits, targets, index = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return logits, targets, index


def snapshot(net: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the net's state dict."""
    return {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}
