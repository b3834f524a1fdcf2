"""From logits and label to the margin, the two probabilities, and the unit direction.

    margin = z_y - log Σ_{j ≠ y} exp z_j,    p = sigmoid(margin),    q = 1 - p = sigmoid(-margin)
    direction = (softmax over the non-target logits - onehot_y) / 2,    |direction|_1 = 1

Nothing here subtracts from 1 or divides by 1 - p: both ends of [0, 1] are exact. Since
d margin / d z = -2 direction, the margin carries the direction through autograd.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.functional import logsigmoid

LOG2_E = math.log2(math.e)
_is_batched = torch._C._functorch.is_batchedtensor
_is_batched_of_old = torch._C._functorch.is_legacy_batchedtensor


def class_dim(logits: Tensor) -> int:
    """Where the classes are: (C), (N, C) or (N, C, d1, ...), as in `torch.nn.CrossEntropyLoss`."""
    return 0 if logits.ndim == 1 else 1


def known_labels(target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Class indices in 64 bits, 0 where one is ignored; and which are not."""
    target = target.long()  # wide before it is compared: -100 is 156 in a uint8
    valid = target != ignore_index
    return target.masked_fill(~valid, 0), valid


def is_transformed() -> bool:
    """Whether `torch.func` or forward mode is at work, for which an autograd function would need rules of its own."""
    return torch._C._are_functorch_transforms_active() or is_forward_mode()


def is_forward_mode() -> bool:
    return forward_ad._current_level >= 0


def at_least_float32(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()


def is_batched(x: Tensor) -> bool:
    """Whether x stands for several tensors, as in `vmap` and `torch.autograd.grad(..., is_grads_batched=True)`."""
    # torch has two kinds of them; a compiler need not follow us there, and has neither
    return not torch.compiler.is_compiling() and (_is_batched(x) or _is_batched_of_old(x))


def statistic(x: Tensor) -> Tensor:
    """A row statistic in float64 (float32 where the device has none): N numbers, so precision is almost free.

    A margin of 80 kept in float32 would put an error of 4e-6 on its weight.
    """
    return x if x.device.type == "mps" else x.double()


def log_sum(z: Tensor, dim: int) -> Tensor:
    """log Σ exp z over the classes, kept as a dimension, for z in float32 or float64.

    The maximum joins in float64 at the end: a common offset of 10^4 would otherwise take four digits from a margin.
    """
    top = z.detach().amax(dim, keepdim=True)
    return statistic(top) + statistic((z - top).exp().sum(dim, keepdim=True).log())


def margin(logits: Tensor, target: Tensor) -> Tensor:
    """margin = z_y - log Σ_{j ≠ y} exp z_j, shaped like `target` (class indices).

    +inf where no non-target class is admissible (all others -inf), -inf where the target logit is -inf.

    >>> margin(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))  # 2 - log 2
    tensor([1.3069], dtype=torch.float64)
    """
    if not torch.compiler.is_compiling() and not is_transformed():
        return Margin.apply(logits, target)  # type: ignore[no-any-return, no-untyped-call]
    z, dim = at_least_float32(logits), class_dim(logits)
    index = target.unsqueeze(dim)
    nothing = torch.finfo(z.dtype).min  # not -inf: the derivative of a sum of nothing would be NaN
    others = log_sum(z.scatter(dim, index, nothing), dim)
    m = statistic(z.gather(dim, index)) - others
    return m.masked_fill(others == nothing, math.inf).squeeze(dim)


def exponentials(z: Tensor, index: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """exp(z_j - top) for every class j but the target, 0 there; top, the largest of those z_j; the sum over j.

    Where there is no other class, top is the least number of its type.
    """
    e = z.scatter(dim, index, torch.finfo(z.dtype).min)
    top = e.amax(dim, keepdim=True)
    # in place: a second copy would cost as much as all this; by powers of 2: on a CPU exp takes twice as long
    e.sub_(top).mul_(LOG2_E).exp2_()
    return e, top, e.sum(dim, keepdim=True)


def margin_and_pull(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """`margin`, and -d margin / d z = softmax over the others - onehot_y, by one exponential and without a graph."""
    z, dim = at_least_float32(logits), class_dim(logits)
    index, nothing = target.unsqueeze(dim), torch.finfo(z.dtype).min
    pull, top, rest = exponentials(z, index, dim)
    m = statistic(z.gather(dim, index)) - top - statistic(rest).log()
    pull.mul_(rest.reciprocal_()).scatter_(dim, index, -1.0)  # in less than half the time of a division
    return m.masked_fill_(top == nothing, math.inf).squeeze(dim), pull


class Margin(torch.autograd.Function):
    """`margin` where nothing transforms it: in half the time."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        m, pull = margin_and_pull(logits, target)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(logits, target, m == math.inf, pull)
        return m

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        logits, target, alone, pull = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again
            pull = 2 * unit_direction(logits, target)
        size = gradients[0].masked_fill(alone, 0.0).to(pull.dtype).unsqueeze(class_dim(logits))
        return (-size * pull).to(logits.dtype), None


def margins(logits: Tensor) -> Tensor:
    """The margins of all classes at once, class dimension first: (C, N, d1, ...), in O(N C).

    log Σ_{k ≠ j} exp z_k = log Σ_k exp z_k + log(1 - p_j) loses nothing while p_j <= 1/2; only the largest class can
    be above that, and for it the sum is taken anew.

    >>> margins(torch.tensor([[2.0, 0.0, 0.0]]))[:, 0]
    tensor([ 1.3069, -2.1269, -2.1269], dtype=torch.float64)
    """
    z, dim = at_least_float32(logits), class_dim(logits)
    nothing = torch.finfo(z.dtype).min
    is_top = torch.zeros_like(z, dtype=torch.bool).scatter(dim, z.detach().argmax(dim, keepdim=True), True)
    beside_top = log_sum(z.masked_fill(is_top, nothing), dim)
    exact, total = statistic(z), log_sum(z, dim)
    share = (exact - total).exp().masked_fill(is_top, 0.0)
    m = exact - torch.where(is_top, beside_top, total + torch.log1p(-share))
    return m.masked_fill(is_top & (beside_top == nothing), math.inf).movedim(dim, 0)


def log_probabilities(margin: Tensor) -> tuple[Tensor, Tensor]:
    """(log p, log q) of a margin.

    >>> log_p, log_q = log_probabilities(torch.tensor(50.0, dtype=torch.float64))
    >>> print(f"{log_q.exp().item():.3e}")
    1.929e-22
    """
    return logsigmoid(margin), logsigmoid(-margin)


def unit_direction(logits: Tensor, target: Tensor) -> Tensor:
    """The unit direction (softmax over the non-target logits - onehot_y) / 2, shaped like `logits`.

    Its components sum to 0 and their sizes to 1. A row with no admissible non-target class has none: zeros.

    >>> unit_direction(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
    tensor([[-0.5000,  0.2500,  0.2500]])
    """
    z, dim = at_least_float32(logits), class_dim(logits)
    index = target.unsqueeze(dim)
    others = z.scatter(dim, index, -math.inf)
    alone = (others == -math.inf).all(dim, keepdim=True)
    onto = others.masked_fill(alone, 0.0).softmax(dim).scatter(dim, index, -1.0) / 2
    return onto.masked_fill(alone, 0.0)
