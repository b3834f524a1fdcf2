"""Losses from expressions, and their error messages."""

from __future__ import annotations

import pytest
import torch

from reweigh.lab.objectives import LOSSES, loss_from
from reweigh.lab.spec import parse
from reweigh.losses import Backward, Forward, LabelSmoothing, LogitAdjustment, LogitClip

COUNTS = [5, 3, 2]


@pytest.mark.parametrize("name", [kind.__name__ for kind in LOSSES])
def test_every_loss_has_an_expression(name: str) -> None:
    text = f"{name}(symmetric(0.3))" if name in ("Forward", "Backward") else name
    loss = loss_from(parse(text), 3, COUNTS)
    assert type(loss).__name__ == name
    assert loss(torch.zeros(2, 3), torch.tensor([0, 1])).isfinite()


def test_matrices_in_expressions() -> None:
    logits, target = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])
    written = loss_from(parse("Forward([[.8,.1,.1],[.1,.8,.1],[.1,.1,.8]])"), 3, COUNTS)
    named = loss_from(parse("Forward(T=symmetric(rate=0.2))"), 3, COUNTS)
    torch.testing.assert_close(written(logits, target), named(logits, target))
    included = loss_from(parse("Forward(symmetric(0.3, include_true=True))"), 3, COUNTS)
    torch.testing.assert_close(written(logits, target), included(logits, target))
    assert loss_from(parse("Backward(map([1, 0, 2], 0.2))"), 3, COUNTS)(logits, target).isfinite()
    adjusted = loss_from(parse("LogitAdjustment(0.5)"), 3, COUNTS)
    torch.testing.assert_close(adjusted(logits, target), LogitAdjustment(COUNTS, 0.5)(logits, target))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Bootstrap(0.8)", "no loss is named 'Bootstrap'; did you mean"),
        ("BootstrapSoft(bta=1)", "BootstrapSoft has no argument 'bta'; did you mean 'beta'"),
        ("BootstrapSoft(2)", r"BootstrapSoft's beta is 2; expected a number in \[0, 1\]"),
        ("Backward(map([1, 'x', 2], 0.2))", "targets has dtype"),
        ("BootstrapSoft('x')", "BootstrapSoft's beta is 'x'"),
        ("BootstrapHard(linear(0, 1))", "beta must be a plain value"),
        ("Forward", "Forward needs T"),
        ("Forward([[1, 0.1], [0, 1]])", "Forward's T: row 0 of matrix sums to 1.1"),
        ("Forward([[1, 0, 0], [0, 1, 0]])", "Forward's T: matrix has shape"),
        ("Forward([[1, -1, 1], [0, 1, 0], [0, 0, 1]])", r"Forward's T: matrix\[0, 1\] is -1"),
        ("Forward(0.4)", "Forward's T: matrix has shape"),
        ("Forward(symetric(0.4))", "no transition matrix is named 'symetric'; did you mean 'symmetric'"),
        ("Forward(symmetric)", "needs a number as its rate"),
        ("Forward(symmetric(0.3, 1))", "include_true is 1; expected true or false"),
        ("Forward(symmetric(0.3, include_true='yes'))", "include_true is 'yes'; expected true or false"),
        ("Forward(map([1, 0], 0.2))", "needs 3 targets"),
        ("Backward(map([1, 0, 2], 0.5))", "Backward's T cannot be inverted"),
        ("LogitAdjustment(class_counts=[1, 2, 3])", "has no argument 'class_counts'"),
        ("LogitClip(0)", r"LogitClip's tau is 0; expected a number in \(0"),
        ("Forward([[1, 0], [0, 1]])", None),
    ],
)
def test_refusals(text: str, sentence: str | None) -> None:
    if sentence is None:  # a matrix for other classes shows when it meets the logits
        loss = loss_from(parse(text), 3, COUNTS)
        with pytest.raises(ValueError, match="T is for 2 classes, the logits have 3"):
            loss(torch.zeros(1, 3), torch.tensor([0]))
        return
    with pytest.raises(ValueError, match=sentence):
        loss_from(parse(text), 3, COUNTS)


def test_symmetric_noise_without_information_cannot_be_inverted() -> None:
    with pytest.raises(ValueError, match="cannot be inverted"):
        Backward(torch.full((4, 4), 0.25))


@pytest.mark.parametrize(
    ("logits", "target", "sentence"),
    [
        (torch.zeros(2, 3), torch.tensor([0, 3]), r"target must be in \[0, 2\], got 3"),
        (torch.zeros(2, 3), torch.tensor([0, -100]), "got -100"),
        (torch.zeros(2, 3), torch.zeros(2, 3), "class indices"),
        (torch.zeros(2, 3), torch.tensor([0]), r"shape \(2,\)"),
        (torch.zeros(3), torch.tensor(0), r"\(N, C\)"),
        (torch.zeros(2, 3, dtype=torch.long), torch.tensor([0, 0]), "floating point"),
    ],
)
def test_bad_calls(logits: torch.Tensor, target: torch.Tensor, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        LogitClip()(logits, target)


def test_reduction_is_checked_and_shown_settings() -> None:
    with pytest.raises(ValueError, match="reduction"):
        LabelSmoothing(reduction="avg")
    assert repr(LabelSmoothing(0.2)) == "LabelSmoothing(epsilon=0.2, sl_compat=False)"
    assert repr(Forward(torch.eye(2))) == "Forward()"


def test_labels_of_every_width() -> None:
    logits = torch.randn(2, 300, generator=torch.Generator().manual_seed(0))
    loss = LabelSmoothing(0.1)
    for dtype in (torch.uint8, torch.int8, torch.uint16, torch.int32):  # 300 is 44 in eight bits
        target = torch.tensor([50, 100], dtype=dtype)
        torch.testing.assert_close(loss(logits, target), loss(logits, target.long()))
    with pytest.raises(ValueError, match=r"target must be in \[0, 199\], got 255"):
        loss(logits[:, :200], torch.tensor([255, 0], dtype=torch.uint8))
