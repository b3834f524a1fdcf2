"""What Co-teaching and SIGUA share: a forget rate that grows, and the examples with small losses."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from reweigh.checks import integer, number


@dataclass(frozen=True)
class Forgetting:
    """R(t): from 0 in a straight line to τ^c over the first T_k epochs, then τ.

    Args:
        rate: τ in [0, 1), usually the noise rate.
        warm_up: T_k.
        exponent: c.

    >>> forgetting = Forgetting(0.45)
    >>> forgetting.at(0), round(forgetting.at(1), 6), forgetting.at(9), forgetting.at(50)
    (0.0, 0.05, 0.45, 0.45)
    >>> Forgetting(1.0)
    Traceback (most recent call last):
        ...
    ValueError: forget_rate is 1.0; expected a number in [0, 1)
    """

    rate: float
    warm_up: int = 10
    exponent: float = 1.0

    def __post_init__(self) -> None:
        number(0, 1, below=True)("forget_rate", self.rate)
        integer(0)("warm_up", self.warm_up)
        number(0, above=True)("exponent", self.exponent)

    def at(self, epoch: int) -> float:
        """The share of a batch that is forgotten in that epoch."""
        if epoch >= self.warm_up:
            return self.rate
        return float(self.rate**self.exponent * (epoch / max(1, self.warm_up - 1)))

    def keeps(self, size: int, epoch: int) -> int:
        """k = int((1 - R) B), at least 1."""
        return max(1, int((1 - self.at(epoch)) * size + 1e-9))  # 0.1 * 10 must not become 0


def ascending(losses: Tensor) -> Tensor:
    """Indices by increasing loss, the earlier of equals first."""
    return losses.detach().argsort(stable=True)
