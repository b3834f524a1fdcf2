"""The coefficients passed to a kernel describe the same function as the weighting."""

from __future__ import annotations

import math

import pytest
import torch

from instances import WEIGHTINGS, name
from reweigh.margin import log_probabilities
from reweigh.weightings import CCE, DM, GCE, MAE, Scaled, Tapered, Uniform, Weighting
from reweigh.weightings.base import BELL, EMPHASIS, FOCUS, POWERS
from reweigh.weightings.compose import form_of

WITH_FORM = [
    *(w for w in WEIGHTINGS if form_of(w) is not None),
    3 * GCE(0.7),
    Scaled(Tapered(DM(0.5, 8), 1e-3), 0.25),
    Tapered(2.0 * CCE(), 1e-6),
]


@pytest.mark.parametrize("weighting", WITH_FORM, ids=name)
def test_form_equals_the_weighting(weighting: Weighting) -> None:
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


def test_weightings_of_the_paper_and_focal_have_a_form() -> None:
    names = {type(weighting).__name__ for weighting in WITH_FORM}
    paper = {"DM", "IMAE", "Normal", "Exponential", "Beta", "Uniform", "CCE", "MAE", "MSE", "GCE", "Tapered"}
    assert names >= paper | {"Focal"}


def test_weightings_without_a_form() -> None:
    by_example = torch.tensor([1.0, 2.0])
    for weighting in (CCE() + MAE(), DM(0.5, by_example), CCE() * by_example, 0.0 * CCE(), Tapered(DM(1, by_example))):
        assert form_of(weighting) is None
    assert form_of(Tapered(Tapered(Uniform(), 1e-3), 1e-3)) is None

    class Overridden(CCE):
        def log_weight(self, log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
            return log_p

    class Extended(Scaled):
        def log_weight(self, log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
            return super().log_weight(log_p, log_q) + 1

    for other in (Overridden(), Extended(CCE(), 2.0), 2 * Overridden(), Extended(Overridden(), 2.0)):
        assert form_of(other) is None
