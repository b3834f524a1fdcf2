"""Checkpoints that contain weightings load under weights_only."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

from instances import INSTANCES
from reweigh import CCE, DM, GCE, MAE, Curve, Tapered
from reweigh.weightings.curve import FromCallable, FromLoss

COMPOSED = [CCE() + 3 * MAE(), DM(0.5, 8) * GCE(0.2), Tapered(DM(0.5, 8)), Curve(((0.0, 0.1), (1.0, 0.0)))]
SINGLE = [each.weighting for each in INSTANCES if not isinstance(each.weighting, FromCallable | FromLoss)]


@pytest.mark.parametrize("weighting", [*SINGLE, *COMPOSED], ids=repr)
def test_a_weighting_loads_under_weights_only(weighting: Any) -> None:
    stored = io.BytesIO()
    torch.save({"hyper_parameters": {"weighting": weighting}}, stored)
    stored.seek(0)
    again = torch.load(stored, weights_only=True)["hyper_parameters"]["weighting"]
    assert again == weighting
    torch.testing.assert_close(again(torch.tensor([0.2, 0.7])), weighting(torch.tensor([0.2, 0.7])))
