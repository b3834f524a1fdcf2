"""Code written for torch's cross entropy accepts the criterion."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

from reweigh import CCE, BinaryCriterion, Criterion


def test_torchs_own_samples() -> None:
    script = Path(__file__).with_name("torch_samples.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.search(r"(\d+) compared, (\d+) exceptions", done.stdout)
    assert found
    assert int(found[1]) > 3 * int(found[2])
    assert int(found[1]) > 80


def test_signature() -> None:
    weight = torch.tensor([1.0, 2.0, 0.5])
    ours, theirs = Criterion(CCE(), weight), nn.CrossEntropyLoss(weight)
    assert isinstance(ours, nn.CrossEntropyLoss)
    assert isinstance(BinaryCriterion(CCE()), nn.BCEWithLogitsLoss)
    assert (ours.reduction, ours.ignore_index, ours.label_smoothing) == ("mean", -100, 0.0)
    logits, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    torch.testing.assert_close(ours(input=logits, target=target), theirs(input=logits, target=target))
    ours.reduction = theirs.reduction = "none"
    torch.testing.assert_close(ours(logits, target), theirs(logits, target))


def test_weights_given_after_a_first_call_take_effect() -> None:
    logits, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    weight = torch.tensor([1.0, 5.0, 0.1])
    criterion, expected = Criterion(CCE()), Criterion(CCE(), weight)(logits, target)
    criterion(logits, target)
    torch.testing.assert_close(torch.func.functional_call(criterion, {"weight": weight}, (logits, target)), expected)
    criterion.register_buffer("weight", weight)
    torch.testing.assert_close(criterion(logits, target), expected)
