"""Weightings for the property tests, each with its formula from the papers.

`formula(p, q, m)` takes a math module (mpmath) and does not use the library's log-domain form; `loss(p)` is the
published loss in torch, if any, shifted to be 0 at p = 1 if it is finite there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

import reweigh
from reweigh import (
    AEL,
    AGCE,
    AUL,
    CCE,
    DM,
    GCE,
    IMAE,
    MAE,
    MSE,
    SL,
    Beta,
    Curve,
    Exponential,
    Focal,
    ForwardSymmetric,
    Normal,
    PHuber,
    Tapered,
    TruncatedGCE,
    Uniform,
    Weighting,
)
from reweigh.weightings import FromCallable


class Instance(NamedTuple):
    weighting: Weighting
    formula: Callable[[Any, Any, Any], Any]
    loss: Callable[[Tensor], Tensor] | None = None


def dm(lam: float, beta: float) -> Instance:
    return Instance(DM(lam, beta), lambda p, q, m: m.exp(beta * p**lam * q))


def gce(exponent: float) -> Instance:
    return Instance(GCE(exponent), lambda p, q, m: 2 * p**exponent * q, lambda p: (1 - p**exponent) / exponent)


def huber_loss(tau: float) -> Callable[[Tensor], Tensor]:
    return lambda p: torch.where(p > 1 / tau, -p.log(), -tau * p + torch.tensor(tau, dtype=p.dtype).log() + 1)


INSTANCES = [
    *(dm(lam, beta) for lam, beta in [(0, 2), (0, -0.52), (0.3, 6.5), (0.5, 8), (0.5, 12), (1, 16), (2, 24), (0.5, 0)]),
    dm(1, -4),
    dm(0.5, 200),
    dm(0.5, -200),
    Instance(IMAE(8.0), lambda p, q, m: m.exp(8 * p * q)),
    Instance(Normal(0.3, 6), lambda p, q, m: m.exp(-6 * p * (p - 2 * m.mpf(0.3)))),
    Instance(Normal(0.7, -2), lambda p, q, m: m.exp(2 * p * (p - 2 * m.mpf(0.7)))),
    Instance(Exponential(4), lambda p, q, m: m.exp(4 * q)),
    Instance(Exponential(-3), lambda p, q, m: m.exp(-3 * q)),
    Instance(Beta(2.5, 1.5), lambda p, q, m: p ** m.mpf(1.5) * q ** m.mpf(0.5)),
    Instance(Beta(1, 2), lambda p, q, m: q),
    Instance(Uniform(), lambda p, q, m: m.mpf(1)),
    Instance(CCE(), lambda p, q, m: 2 * q, lambda p: -p.log()),
    Instance(MAE(), lambda p, q, m: 2 * p * q, lambda p: 1 - p),
    Instance(MSE(), lambda p, q, m: 4 * p * q**2, lambda p: (1 - p) ** 2),
    gce(0.7),
    gce(0.1),
    gce(1.5),
    Instance(
        TruncatedGCE(0.7, 0.5),
        lambda p, q, m: 2 * p ** m.mpf(0.7) * q if p > 0.5 else m.mpf(0),
        lambda p: (1 - p.clamp_min(0.5) ** 0.7) / 0.7,
    ),
    Instance(SL(0.1, 9.21), lambda p, q, m: 2 * q * (0.1 + 9.21 * p), lambda p: -0.1 * p.log() + 9.21 * (1 - p)),
    Instance(SL(6, 0.921), lambda p, q, m: 2 * q * (6 + 0.921 * p), lambda p: -6 * p.log() + 0.921 * (1 - p)),
    Instance(
        Focal(2.0), lambda p, q, m: 2 * q**2 * (q - 2 * p * m.log(p) if p else q), lambda p: -((1 - p) ** 2) * p.log()
    ),
    Instance(
        Focal(0.5),
        lambda p, q, m: 2 * m.sqrt(q) * (q - p * m.log(p) / 2 if p else q),
        lambda p: -((1 - p) ** 0.5) * p.log(),
    ),
    Instance(Focal(2.0, detach=True), lambda p, q, m: 2 * q**3),
    Instance(PHuber(2.0), lambda p, q, m: 2 * q * min(m.mpf(1), 2 * p), huber_loss(2.0)),
    Instance(PHuber(10.0), lambda p, q, m: 2 * q * min(m.mpf(1), 10 * p), huber_loss(10.0)),
    Instance(
        AGCE(0.6, 0.6),
        lambda p, q, m: 2 * p * q * (m.mpf(0.6) + p) ** (m.mpf(0.6) - 1),
        lambda p: (1.6**0.6 - (0.6 + p) ** 0.6) / 0.6,
    ),
    Instance(
        AGCE(6.0, 1.5),
        lambda p, q, m: 2 * p * q * (6 + p) ** m.mpf(0.5),
        lambda p: (7**1.5 - (6 + p) ** 1.5) / 1.5,
    ),
    Instance(
        AUL(5.5, 3.0),
        lambda p, q, m: 2 * p * q * (m.mpf(5.5) - p) ** 2,
        lambda p: ((5.5 - p) ** 3 - 4.5**3) / 3,
    ),
    Instance(
        AEL(2.5),
        lambda p, q, m: 2 * p * q * m.exp(-p / m.mpf(2.5)) / m.mpf(2.5),
        lambda p: (-p / 2.5).exp() - torch.tensor(-1 / 2.5, dtype=p.dtype).exp(),
    ),
    Instance(
        ForwardSymmetric(0.4, 10),
        lambda p, q, m: (
            2 * q * (m.mpf(0.6) - m.mpf(0.4) / 9) * p / (m.mpf(0.4) / 9 + (m.mpf(0.6) - m.mpf(0.4) / 9) * p)
        ),
        lambda p: -(0.4 / 9 + (0.6 - 0.4 / 9) * p).log() + torch.tensor(0.6, dtype=p.dtype).log(),
    ),
    Instance(Tapered(DM(0.5, 8), 1e-3), lambda p, q, m: m.exp(8 * m.sqrt(p) * q) * q / (q + m.mpf(1e-3))),
    Instance(CCE() + 3.0 * MAE(), lambda p, q, m: 2 * q + 6 * p * q, lambda p: -p.log() + 3 * (1 - p)),
    Instance(DM(1, 4) * MAE(), lambda p, q, m: m.exp(4 * p * q) * 2 * p * q),
    Instance(reweigh.from_loss(lambda p: (1 - p) ** 3), lambda p, q, m: 6 * p * q**3, lambda p: (1 - p) ** 3),
    Instance(FromCallable(lambda p, q: 4 * p * q), lambda p, q, m: 4 * p * q),
]

# A curve has no formula; it is used in tests that need none.
CURVE = Curve(((0.0, 0.2), (0.3, 2.0), (0.6, 1.0), (1.0, 0.0)))
WEIGHTINGS = [*(instance.weighting for instance in INSTANCES), CURVE]
FROM_LOSSES = [instance for instance in INSTANCES if instance.loss is not None]


def name(instance: object) -> str:
    return repr(instance.weighting if isinstance(instance, Instance) else instance)
