"""Inputs that a net refuses, and the messages."""

from __future__ import annotations

import re

import pytest
import torch

from reweigh.lab.nets.registry import build, check_reads


def seeded(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(len(name))


@pytest.mark.parametrize(
    ("name", "shape", "told"),
    [
        ("cifarnet", (3, 8, 8), "3x8x8 (channels x height x width); it can read 3x32x32"),
        ("cnn9", (3, 8, 8), "it can read 3x32x32, 3x64x64, 3x128x128, 3x224x224"),
        ("googlenet-v1", (3, 8, 8), "it can read 3x32x32, 3x64x64, 3x128x128, 3x224x224"),
        ("bn-inception", (3, 8, 8), "it can read 3x32x32, 3x64x64, 3x128x128, 3x224x224"),
        (
            "resnet20",
            (4, 32, 32),
            "net 'resnet20' cannot read images of 4x32x32 (channels x height x width); expected 3",
        ),
        (
            "imdb",
            (3, 32, 32),
            "net 'imdb' cannot read images of 3x32x32 (channels x height x width): mat1 and mat2 shapes",
        ),
    ],
)
def test_images_that_a_net_cannot_read(name: str, shape: tuple[int, ...], told: str) -> None:
    net = build(name, 2, generator=seeded(name))
    with pytest.raises(ValueError, match=re.escape(told)):
        check_reads(net, name, shape)


@pytest.mark.parametrize(("name", "shape"), [("resnet20", (3, 8, 12)), ("cae-resnet20", (3, 16, 8)), ("mlp-4", (6,))])
def test_looking_leaves_no_trace(name: str, shape: tuple[int, ...]) -> None:
    features = shape[0] if len(shape) == 1 else None
    net, other = (build(name, 2, features, generator=seeded(name)) for _ in range(2))
    check_reads(net, name, shape)
    assert net.training
    for key, tensor in other.state_dict().items():
        assert torch.equal(net.state_dict()[key], tensor), key


@pytest.mark.parametrize("name", ["mlp-0", "mpl-16", "mlp", "mlp16"])
def test_a_slip_in_the_widths_is_told_how_they_are_written(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape("(mlp-<width>[-<width>...]: any hidden widths from 1)")):
        build(name, 2, 4, generator=seeded(name))


@pytest.mark.parametrize("name", ["mlp-9999999999999", "mlp-2000000000-2000000000", f"mlp-{10**24}"])
def test_a_net_that_no_memory_holds(name: str) -> None:
    with pytest.raises(MemoryError, match=f"net '{name}' is too large"):
        build(name, 2, 64, generator=seeded(name))


@pytest.mark.parametrize("name", ["resnet20", "resnet44-projection", "resnet18", "preact-resnet18", "cae-resnet20"])
def test_large_images_get_the_stem_of_imagenet(name: str) -> None:
    small, large = (build(name, 2, generator=seeded(name), large=large) for large in (False, True))
    sizes = [next(p.shape[2] for p in net.parameters() if p.ndim == 4) for net in (small, large)]
    assert sizes == [3, 7]
    check_reads(large, name, (3, 96, 96))


def test_nets_without_a_choice_keep_their_stem() -> None:
    for name in ("resnet50", "cnn9"):
        plain, large = (build(name, 2, generator=seeded(name), large=large).state_dict() for large in (False, True))
        assert {key: value.shape for key, value in plain.items()} == {key: value.shape for key, value in large.items()}
