"""What most methods share: one net, no weights to show, and state that is a few attributes."""

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
    """A `Method` but for its loss: the context's net is taught and predicts.

    `saved` names the attributes that a checkpoint needs: tensors, numbers, texts, None and lists or dicts of them, or
    anything with a state dict of its own.

    `times` names the arguments that count epochs or iterations of the run, with the least value of each: they shrink
    with a shorter run. Lengths of trainings of their own (`mentor_steps`) and shares of the run (`burn_in`) do not.

    A method takes part in the capture of iterations as one graph (`reweigh.lab.train.captured`) by `capture_key(step)`,
    and where the host decides anything from step to step, by `prepare(step, size)`. One that can't may say why:
    `uncaptured`. The net is compiled as a whole: one that calls its parts instead says so, `reads_features`.
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

    def epoch_end(self, epoch: int) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {name: _written(getattr(self, name)) for name in self.saved}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self.saved:
            own, saved = getattr(self, name), state[name]
            if isinstance(own, torch.optim.Optimizer):
                here = [group["capturable"] for group in own.param_groups]
                own.load_state_dict(saved)
                for group, capturable in zip(own.param_groups, here, strict=True):
                    group["capturable"] = capturable  # the state may come from another device
            elif hasattr(own, "load_state_dict"):
                own.load_state_dict(saved)
            else:
                setattr(self, name, saved.to(self.context.device) if isinstance(saved, Tensor) else saved)


def constant_graph(method: object, step: int) -> Hashable:
    """The `capture_key` of a method whose iterations are all alike: one graph does for all."""
    return None


def _written(value: Any) -> Any:
    return value.state_dict() if hasattr(value, "state_dict") else value


def check_start_epoch(context: Context, name: str, epoch: int) -> int:
    """A whole number of epochs after which a method begins to differ, within the run: else it never would."""
    start: int = integer(0)(name, epoch)
    if start * context.epoch >= context.total:
        raise ValueError(f"{name} is {start} epochs, but the run has {context.total / context.epoch:g}")
    return start


def row_losses(logits: Tensor, target: Tensor) -> Tensor:
    """(B,) cross entropies in float32 or better."""
    return functional.cross_entropy(at_least_float32(logits), target, reduction="none")


def gradient_norm(v: Tensor, losses: Tensor) -> Tensor:
    """v 2 (1 - p): how much an example with weight v on its cross entropy counts, p = exp(-loss)."""
    return -2 * v * (-losses).expm1()


@contextmanager
def without_gradients() -> Iterator[None]:
    """No gradients for as long as the block lasts, and afterwards no trace of that."""
    with torch.no_grad():
        yield
    # torch before 2.11 would give autocast's copies of weights that were made here, without gradients, to later passes
    torch.clear_autocast_cache()


def without_autocast(loss: Tensor) -> torch.autocast:
    """For backward passes within an iteration: not under autocast, which would round what they multiply."""
    return torch.autocast(loss.device.type, enabled=False)


@contextmanager
def eval_mode(net: nn.Module) -> Iterator[None]:
    """No gradients, and the net in evaluation mode, for as long as the block lasts."""
    was = net.training
    net.eval()
    try:
        with without_gradients():
            yield
    finally:
        net.train(was)


def logits_of(net: nn.Module, batches: Iterable[Batch]) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (N, C) in evaluation mode, targets and indices of all examples of `batches`."""
    with eval_mode(net):
        parts = [(at_least_float32(net(batch.inputs)), batch.target, batch.index) for batch in batches]
    logits, targets, index = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return logits, targets, index


def snapshot(net: nn.Module) -> dict[str, Tensor]:
    """A copy of the net's state dict that further training does not change."""
    return {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}
