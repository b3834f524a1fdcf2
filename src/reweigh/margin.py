"""Logits and a label as a margin, the two probabilities, and the unit direction.

    margin = z_y - log Σ_{j ≠ y} exp z_j,    p = sigmoid(margin),    q = 1 - p = sigmoid(-margin)
    direction = (softmax over the non-target logits - onehot_y) / 2,    |direction|_1 = 1

Nothing here subtracts from 1 or divides by 1 - p: both ends of [0, 1] are exact. d margin / d z = -2 direction.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

LOG2_E = math.log2(math.e)


def class_dim(logits: Tensor) -> int:
    """Return the dimension of the classes: (C), (N, C) or (N, C, d1, ...), as in `torch.nn.CrossEntropyLoss`."""
    return 0 if logits.ndim == 1 else 1


def at_least_float32(logits: Tensor) -> Tensor:
    """Return the logits in float32, or in float64 if they are."""
    return logits if logits.dtype == torch.float64 else logits.float()


def statistic(x: Tensor) -> Tensor:
    """Return a row statistic in float64 (float32 where the device has none).

    There are only N of them, so precision is almost free; a margin of 80 in float32 would put an error of 4e-6 on its
    weight.
    """
    return x if x.device.type == "mps" else x.double()


def log_sum(z: Tensor, dim: int) -> Tensor:
    """Return log Σ exp z over the classes, kept as a dimension, for z in float32 or float64.

    The maximum is added in float64 at the end: a common offset of 10^4 would otherwise cost a margin four digits.
    """
    top = z.detach().amax(dim, keepdim=True)
    return statistic(top) + statistic((z - top).exp().sum(dim, keepdim=True).log())


def own_logit(z: Tensor, index: Tensor) -> Tensor:
    """Return z_y, NaN where it is +inf, as in torch: a probability of inf / inf."""
    return statistic(z.gather(class_dim(z), index)).nan_to_num(math.nan, math.nan, -math.inf)


def margin(logits: Tensor, target: Tensor) -> Tensor:
    """Return margin = z_y - log Σ_{j ≠ y} exp z_j, shaped like `target` (class indices).

    It is +inf where no non-target class is admissible (all others are -inf), -inf where the target logit is -inf.

    >>> margin(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))  # 2 - log 2
    tensor([1.3069], dtype=torch.float64)
    """
    z, dim = at_least_float32(logits), class_dim(logits)
    index = target.unsqueeze(dim)
    lowest = torch.finfo(z.dtype).min  # not -inf: the derivative of a sum of nothing would be NaN
    others = log_sum(z.scatter(dim, index, lowest), dim)
    m = own_logit(z, index) - others
    return m.masked_fill(others == lowest, math.inf).squeeze(dim)


def margin_and_pull(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the margin, a pull and its scale: pull / scale is softmax over the others - onehot_y = -d margin / d z.

    The same numbers as `margin` and twice `unit_direction`, from one exponential and without a graph. The division is
    left to the factor that the pull is multiplied by anyway: on a CPU a pass takes as long as all this.
    """
    z, dim = at_least_float32(logits), class_dim(logits)
    index, lowest = target.unsqueeze(dim), torch.finfo(z.dtype).min
    pull = z.scatter(dim, index, lowest)
    top = pull.amax(dim, keepdim=True)
    pull.sub_(top).mul_(LOG2_E).exp2_()  # exp takes twice as long on a CPU
    scale = pull.sum(dim, keepdim=True)
    pull.scatter_(dim, index, -scale)
    m = own_logit(z, index) - top - scale.log()
    return m.masked_fill(top == lowest, math.inf).squeeze(dim), pull, scale.squeeze(dim)


def margins(logits: Tensor) -> Tensor:
    """Return the margins of all classes, class dimension first: (C, N, d1, ...), in O(N C).

    log Σ_{k ≠ j} exp z_k = log Σ_k exp z_k + log(1 - p_j) loses nothing while p_j <= 1/2; only the largest class can
    be above that, and its sum is computed separately.

    >>> margins(torch.tensor([[2.0, 0.0, 0.0]]))[:, 0]
    tensor([ 1.3069, -2.1269, -2.1269], dtype=torch.float64)
    """
    z, dim = at_least_float32(logits), class_dim(logits)
    lowest = torch.finfo(z.dtype).min
    is_top = torch.zeros_like(z, dtype=torch.bool).scatter(dim, z.detach().argmax(dim, keepdim=True), True)
    others_of_top = log_sum(z.masked_fill(is_top, lowest), dim)
    exact, total = statistic(z).nan_to_num(math.nan, math.nan, -math.inf), log_sum(z, dim)
    share = (exact - total).exp().masked_fill(is_top, 0.0)
    m = exact - torch.where(is_top, others_of_top, total + torch.log1p(-share))
    return m.masked_fill(is_top & (others_of_top == lowest), math.inf).movedim(dim, 0)


def log_probabilities(margin: Tensor) -> tuple[Tensor, Tensor]:
    """Return (log p, log q) of a margin.

    >>> log_p, log_q = log_probabilities(torch.tensor(50.0, dtype=torch.float64))
    >>> print(f"{log_q.exp().item():.3e}")
    1.929e-22
    """
    return logsigmoid(margin), logsigmoid(-margin)


def unit_direction(logits: Tensor, target: Tensor) -> Tensor:
    """Return the unit direction (softmax over the non-target logits - onehot_y) / 2, shaped like `logits`.

    Its components sum to 0 and their absolute values to 1. A row with no admissible non-target class gets zeros.

    >>> unit_direction(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
    tensor([[-0.5000,  0.2500,  0.2500]])
    """
    z, dim = at_least_float32(logits), class_dim(logits)
    index = target.unsqueeze(dim)
    others = z.scatter(dim, index, -math.inf)
    alone = (others == -math.inf).all(dim, keepdim=True)
    direction = others.masked_fill(alone, 0.0).softmax(dim).scatter(dim, index, -1.0) / 2
    return direction.masked_fill(alone, 0.0)
