"""The few numbers that a kernel gets of a weighting say the same as the weighting."""

from __future__ import annotations

import math

import pytest
import torch

from instances import WEIGHTINGS, name
from reweigh.margin import log_probabilities
from reweigh.weightings import CCE, DM, GCE, MAE, Scaled, Tapered, Uniform, Weighting
from reweigh.weightings.base import BELL, EMPHASIS, FOCUS, POWERS
from reweigh.weightings.compose import form_of

IN_KERNEL = [
    *(w for w in WEIGHTINGS if form_of(w) is not None),
    3 * GCE(0.7),
    Scaled(Tapered(DM(0.5, 8), 1e-3), 0.25),
    Tapered(2.0 * CCE(), 1e-6),
]


@pytest.mark.parametrize("weighting", IN_KERNEL, ids=name)
def test_form_is_the_weighting(weighting: Weighting) -> None:
    margin = torch.linspace(-90, 90, 181, dtype=torch.float64)
    log_p, log_q = log_probabilities(margin)
    form = form_of(weighting)
    assert form is not None
    log_w = {
        POWERS: form.a * log_p + form.b * log_q,
        EMPHASIS: form.b * (form.a * log_p + log_q).exp(),
        BELL: form.b * log_p.exp() * (form.a + log_q.exp()),
        FOCUS: (form.a + 1) * log_q + torch.log1p(form.a * -log_p * margin.exp()),
    }[form.family]
    log_w = log_w + form.c
    if form.inner:
        log_w = log_w + log_q - torch.logaddexp(log_q, torch.tensor(math.log(form.inner), dtype=torch.float64))
    torch.testing.assert_close(log_w, weighting.log_weight(log_p, log_q), rtol=1e-12, atol=1e-12)


def test_families_of_the_paper_have_a_form() -> None:
    kinds = {type(weighting).__name__ for weighting in IN_KERNEL}
    assert kinds >= {"DM", "IMAE", "Normal", "Exponential", "Beta", "Uniform", "CCE", "MAE", "MSE", "GCE", "Tapered"}
    assert "Focal" in kinds  # which is none of the paper's, but much used


def test_others_have_none() -> None:
    by_example = torch.tensor([1.0, 2.0])
    for weighting in (CCE() + MAE(), DM(0.5, by_example), CCE() * by_example, 0.0 * CCE(), Tapered(DM(1, by_example))):
        assert form_of(weighting) is None
    assert form_of(Tapered(Tapered(Uniform(), 1e-3), 1e-3)) is None

    class Different(CCE):
        def log_weight(self, log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
            return log_p

    class More(Scaled):
        def log_weight(self, log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
            return super().log_weight(log_p, log_q) + 1

    for other in (Different(), More(CCE(), 2.0), 2 * Different(), More(Different(), 2.0)):
        assert form_of(other) is None
