"""DRSA and CAE against numbers obtained independently, and what they share."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from reweigh.lab.methods.video import OIM, frame_sets, overlap, pair_loss
from reweigh.lab.nets import build
from reweigh.lab.nets.cae import CAENet, self_pooled
from reweigh.lab.nets.drsa import DRSANet
from reweigh.lab.train.model import Card, load_model, save_model


def make(name: str, features: int | None = None) -> Any:
    return build(name, 4, features, generator=torch.Generator().manual_seed(1))


def test_disjoint_maps_do_not_overlap_and_equal_ones_do() -> None:
    assert overlap(torch.eye(4)[None, :3]).sqrt().item() == 0
    assert overlap(torch.full((1, 2, 32), 1 / 32)).sqrt().item() == pytest.approx(math.sqrt(2))


def test_overlap_has_a_gradient_at_disjoint_maps() -> None:
    maps = torch.eye(4)[None, :3].clone().requires_grad_()
    overlap(maps).sum().backward()
    assert maps.grad is not None
    assert maps.grad.isfinite().all()


def test_attention_is_a_distribution_and_the_video_is_the_mean_of_its_frames() -> None:
    net: DRSANet = make("drsa3-resnet20").eval()
    x = torch.randn(5, 3, 16, 8)
    parts, attention = net.attend(x)
    assert parts.shape == (5, 3, 128)
    assert attention.shape == (5, 3, 8)
    torch.testing.assert_close(attention.sum(-1), torch.ones(5, 3))
    torch.testing.assert_close(parts.norm(dim=-1), torch.ones(5, 3))
    torch.testing.assert_close(net.gated(parts), net.features(x))
    gates = net.features(x).reshape(5, 3, 128).norm(dim=-1)
    assert ((gates > 0) & (gates < 1)).all()


def test_self_pooling_with_constant_keys_is_the_mean() -> None:
    values, queries = torch.randn(2, 3, 8, 5).unbind(0)
    constant = torch.full((3, 8, 5), 0.7)
    torch.testing.assert_close(self_pooled(values, queries, constant), values.mean(1))


def test_self_pooling_attends_in_every_dimension_on_its_own() -> None:
    values = torch.tensor([[[1.0, 1.0], [2.0, 2.0]]])
    keys = torch.tensor([[[100.0, 0.0], [0.0, 100.0]]])
    assert self_pooled(values, torch.ones(1, 2, 2), keys).tolist() == [[1.0, 2.0]]


def test_pair_loss_weighs_kinds_and_not_pairs() -> None:
    logits = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.5, 0.0], [0.0, 3.0]])
    same = torch.tensor([True, False, False, False])
    each = functional.cross_entropy(logits, same.long(), reduction="none")
    expected = (each[0] + 3 * each[1:].mean()) / 4
    assert pair_loss(logits, same).item() == pytest.approx(expected.item())
    assert pair_loss(logits, torch.zeros(4, dtype=torch.bool)).item() == 0
    assert pair_loss(logits[:1], same[:1]).item() == pytest.approx(each[0].item())


def test_oim_remembers_in_the_order_of_the_batch_and_learns_from_what_it_knew() -> None:
    net: CAENet = make("cae-linear", 3)
    oim = OIM("CAE", net, scale=30.0, momentum=0.5)
    features = torch.randn(3, 128, requires_grad=True)
    target = torch.tensor([2, 0, 2])
    loss = oim.loss(features, target)
    assert loss.item() == pytest.approx(math.log(4))  # nothing was known
    loss.backward()
    assert features.grad is not None
    assert features.grad.abs().sum() == 0
    unit = functional.normalize(features.detach())
    twice = functional.normalize(0.5 * unit[0] + 0.5 * unit[2], dim=0)
    torch.testing.assert_close(net.classifier.weight[2], twice)
    torch.testing.assert_close(net.classifier.weight[0], unit[1])
    assert net.classifier.weight[1].abs().sum() == 0
    logits = 30 * unit @ net.classifier.weight.T
    assert oim.loss(features, target).item() == pytest.approx(functional.cross_entropy(logits, target).item(), rel=1e-5)
    torch.testing.assert_close(net.classifier(unit).shape, logits.shape)


def test_oim_learns_from_rounded_logits_where_the_net_rounds_them() -> None:
    net: CAENet = make("cae-linear", 3)
    net.rounds_logits = True
    oim = OIM("CAE", net, scale=3.0, momentum=0.5)
    features, target = torch.randn(3, 128), torch.tensor([2, 0, 2])
    oim.loss(features, target)
    exact = net.classifier(features)
    assert oim.loss(features, target).item() == functional.cross_entropy(exact.bfloat16().float(), target).item()


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_sets_hold_every_frame_and_one_label(size: int) -> None:
    target = torch.tensor([5, 1, 5, 5, 0, 1, 5])
    sets = frame_sets(target, size)
    assert sets.shape[1] == size
    assert set(sets.flatten().tolist()) == set(range(7))
    labels: Tensor = target[sets]
    assert (labels == labels[:, :1]).all()


@pytest.mark.parametrize(("text", "name"), [("DRSA(frames=4)", "drsa2-resnet20"), ("CAE(frames=4)", "cae-resnet20")])
def test_the_model_is_saved_with_its_table(
    text: str, name: str, make_method: Callable[..., Any], tmp_path: Path
) -> None:
    method = make_method(text, net=name)
    batch = method.context.batches.batch(0)
    method.loss(batch, 0)
    card = Card(net=name, class_names=("a", "b", "c", "d"), kind="images", shape=(3, 8, 4))
    save_model(tmp_path, method.predictor, card)
    net, _ = load_model(tmp_path)
    with torch.no_grad():
        assert torch.equal(net(batch.inputs), method.predictor.eval()(batch.inputs))


def test_a_batch_of_one_label_is_no_obstacle(make_method: Callable[..., Any]) -> None:
    method = make_method("CAE(frames=8)", net="cae-mlp-16")
    batch = method.context.batches.batch(0)
    batch = batch._replace(inputs=batch.inputs[:8], target=torch.zeros(8, dtype=torch.int64), index=batch.index[:8])
    assert method.loss(batch, 0).isfinite()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("drsa-cnn9", "drsa- needs a net with feature maps, a ResNet or bn-inception, not CNN9"),
        ("drsa0-resnet20", "no net is named 'drsa0-resnet20'"),
        ("cae-cae-resnet20", "no net is named 'cae-cae-resnet20'"),
        ("cae-resnet21", "no net is named 'resnet21'"),
    ],
)
def test_nets_that_cannot_be(name: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make(name)
