"""Build nets by name."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import torch

from reweigh.lab.nets.bn_inception import BNInception
from reweigh.lab.nets.cae import CAENet
from reweigh.lab.nets.cifarnet import CifarNet
from reweigh.lab.nets.cnn9 import CNN9
from reweigh.lab.nets.drsa import DRSANet
from reweigh.lab.nets.googlenet import GoogLeNetV1, GoogLeNetV1Cifar
from reweigh.lab.nets.mlp import MLP, IMDBNet
from reweigh.lab.nets.net import Net
from reweigh.lab.nets.preact import preact_resnet18, wrn_56_10
from reweigh.lab.nets.resnet import resnet10_thin, resnet18, resnet34, resnet50, resnet_cifar

SIDES = (8, 16, 32, 64, 128, 224)  # of images that an error message may suggest
LARGE = 96 * 96
"""Pixels from which a net with a choice of stems gets that of ImageNet: a 7x7 convolution and a pooling, each /2."""

ImageSize = Literal["any", "small", "large"]


class ImageNet(NamedTuple):
    """A net for RGB images: its constructor and the images it is for.

    Attributes:
        make: takes (num_classes, dropout), and `large` if it is for images of any size.
        images: "small" (about 32 x 32), "large" (about 224 x 224) or "any", with a stem for each.
    """

    make: Callable[..., Net]
    images: ImageSize


IMAGE_NETS: dict[str, ImageNet] = {
    **{f"resnet{depth}": ImageNet(partial(resnet_cifar, depth), "any") for depth in (20, 32, 44, 56)},
    **{
        f"resnet{depth}-projection": ImageNet(partial(resnet_cifar, depth, shortcut="projection"), "any")
        for depth in (20, 32, 44, 56)
    },
    "resnet10-thin": ImageNet(resnet10_thin, "large"),
    "resnet18": ImageNet(resnet18, "any"),
    "resnet34": ImageNet(resnet34, "any"),
    "resnet50": ImageNet(resnet50, "large"),
    "preact-resnet18": ImageNet(preact_resnet18, "any"),
    "wrn-56-10": ImageNet(wrn_56_10, "any"),
    "googlenet-v1": ImageNet(GoogLeNetV1, "large"),
    "googlenet-v1-cifar": ImageNet(GoogLeNetV1Cifar, "small"),
    "bn-inception": ImageNet(BNInception, "large"),
    "cifarnet": ImageNet(CifarNet, "small"),
    "cnn9": ImageNet(CNN9, "small"),
}


def names() -> tuple[str, ...]:
    """Return the names that `build` accepts; `mlp-256-256` stands for any hidden widths.

    The prefix `cae-` takes any net, `drsa-` (`drsa3-` for three parts) a ResNet or BN-Inception.
    """
    return (*IMAGE_NETS, "imdb", "linear", "mlp-256-256", "cae-resnet20", "drsa-resnet20")


def build(
    name: str,
    num_classes: int,
    in_features: int | None = None,
    *,
    generator: torch.Generator,
    dropout: float = 0.0,
    large: bool = False,
    most_bytes: int | None = None,
) -> Net:
    """Build the net of that name on the CPU, with initial values drawn only from `generator`.

    Torch's global random state is neither read nor changed: the net is created on the meta device and filled
    afterwards. Equal generators give equal bytes.

    Args:
        name: one of `names()`, e.g. "resnet44-projection", "bn-inception", "mlp-128-64".
        num_classes: C, 1 or more.
        in_features: numbers per example, for "linear", "mlp-..." and "imdb" (there 100 if not given); image
            nets read three channels and do not take it.
        generator: a CPU generator; advanced.
        dropout: probability of dropping a feature before the classifier, 0 <= dropout < 1.
        large: the stem for large images, where the net has a choice; see `needs_large_stem`.
        most_bytes: raise ValueError for a net with larger parameters, before any memory is allocated.

    >>> net = build("imdb", 2, generator=torch.Generator().manual_seed(0))
    >>> sum(parameter.numel() for parameter in net.parameters())
    826
    >>> build("resnet65", 10, generator=torch.Generator())
    Traceback (most recent call last):
        ...
    ValueError: no net is named 'resnet65'; the nearest names are resnet56, resnet50, resnet44

    Raises:
        MemoryError: the net does not fit in memory.
    """
    if num_classes < 1:
        raise ValueError(f"num_classes must be 1 or more, not {num_classes}")
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must be at least 0 and below 1, not {dropout}")
    try:
        with torch.device("meta"):
            net = _layout(name, num_classes, in_features, dropout, large)
        size = sum(parameter.nbytes for parameter in net.parameters())
        if most_bytes is not None and size > most_bytes:
            raise ValueError(f"net {name!r:.100} has {size:,} bytes of parameters; expected at most {most_bytes:,}")
        net.to_empty(device="cpu")
    except RuntimeError as error:  # torch's error for a size that it cannot allocate or count
        raise MemoryError(f"net {name!r} is too large") from error
    net.initialise(generator)
    return net


def needs_large_stem(shape: tuple[int, ...]) -> bool:
    """Return whether inputs of this shape, (C, H, W) or (F,), are large images.

    >>> needs_large_stem((3, 64, 64)), needs_large_stem((3, 224, 224)), needs_large_stem((20000,))
    (False, True, False)
    """
    return len(shape) == 3 and shape[1] * shape[2] >= LARGE


def check_reads(net: Net, name: str, shape: tuple[int, ...]) -> None:
    """Raise ValueError if a net cannot read inputs of this shape, which is tested with zeros.

    Args:
        net: on its device; unchanged afterwards.
        name: its name, for the message.
        shape: of one input, (C, H, W) or (F,).

    >>> net = build("cifarnet", 10, generator=torch.Generator())
    >>> check_reads(net, "cifarnet", (3, 64, 48))
    Traceback (most recent call last):
        ...
    ValueError: net 'cifarnet' cannot read images of 3x64x48 (channels x height x width); it can read 3x32x32
    """
    error = _refusal(net, shape)
    if error is None:
        return
    if len(shape) != 3:
        raise error
    problem = f"net {name!r} cannot read images of {'x'.join(map(str, shape))} (channels x height x width)"
    if shape[0] != 3:
        raise ValueError(f"{problem}; expected 3 channels") from error
    read = [f"3x{side}x{side}" for side in SIDES if _refusal(net, (3, side, side)) is None]
    why = f"; it can read {', '.join(read)}" if read else f": {str(error).partition(chr(10))[0]}"
    raise ValueError(f"{problem}{why}") from error


@torch.no_grad()
def _refusal(net: Net, shape: tuple[int, ...]) -> RuntimeError | None:
    """Return torch's error for an input of that shape, or None; running out of memory is raised instead."""
    was_training, was_benchmark = net.training, torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False  # not worth trying algorithms
    try:
        net.eval()(torch.zeros(1, *shape, device=net.classifier.weight.device))
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        return error
    finally:
        net.train(was_training)
        torch.backends.cudnn.benchmark = was_benchmark
    return None


def _layout(name: str, num_classes: int, in_features: int | None, dropout: float, large: bool = False) -> Net:
    if video := re.fullmatch(r"(cae|drsa([1-9]\d?)?)-(?!cae-|drsa)(.+)", name):
        kind, parts, body = video.groups()
        inner = _layout(body, num_classes, in_features, 0.0, large)
        if kind == "cae":
            return CAENet(inner, num_classes, dropout=dropout)
        return DRSANet(inner, num_classes, parts=int(parts or 6), dropout=dropout)
    if name in IMAGE_NETS:
        if in_features is not None:
            raise ValueError(f"net {name!r} reads RGB images, not vectors of {in_features} features")
        entry = IMAGE_NETS[name]
        stem = {"large": large} if entry.images == "any" else {}
        return entry.make(num_classes=num_classes, dropout=dropout, **stem)
    if name == "imdb":
        return IMDBNet(100 if in_features is None else in_features, num_classes, dropout=dropout)
    if name != "linear" and not re.fullmatch(r"mlp(-[1-9]\d*)+", name):
        near = difflib.get_close_matches(name, names(), n=3, cutoff=0.0)
        widths = " (mlp-<width>[-<width>...]: any hidden widths from 1)" if "mlp-256-256" in near else ""
        raise ValueError(f"no net is named {name!r}; the nearest names are {', '.join(near)}{widths}")
    if in_features is None or in_features < 1:
        raise ValueError(f"net {name!r} reads feature vectors and needs in_features, not {in_features}")
    hidden = [int(width) for width in name.split("-")[1:]]
    if max(hidden, default=0) > sys.maxsize:
        raise MemoryError(f"net {name!r} is too large")
    return MLP(in_features, hidden, num_classes, dropout=dropout)
