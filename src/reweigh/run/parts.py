"""The moving parts of a run: batches, net, method, and the settings of the machine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from reweigh.batches import Balanced, Cyclic, Loader, Order, Resident, Shuffled
from reweigh.criterion import Criterion
from reweigh.criterion.options import Normalise
from reweigh.data.dataset import Part
from reweigh.errors import DataError
from reweigh.methods.criterion import ByCriterion
from reweigh.methods.protocol import Context, Method
from reweigh.nets.net import Net
from reweigh.nets.registry import build
from reweigh.nets.weights import load_weights
from reweigh.run.material import Material
from reweigh.spec import Run, parse
from reweigh.streams import generator
from reweigh.train.schedules import over_steps, taper_at
from reweigh.weighting.parse import weighting_from

Batches = Resident | Loader
RESIZE, CROP = (256, 256), (224, 224)  # of image files, as the paper has it


def device_of(run: Run) -> torch.device:
    """The device a run asks for; "auto" is a GPU where there is one."""
    if run.device != "auto":
        device = torch.device(run.device)
        if device.type == "cuda" and not torch.cuda.is_available():
            raise ValueError(f"device is {run.device!r}, but torch sees no CUDA device here")
        return device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def order_of(run: Run, part: Part) -> Order:
    """Which examples each step sees."""
    if run.sampler == "balanced":
        return Balanced(part.labels, run.batch_size, run.seed, classes=run.classes_per_batch)
    kind = Cyclic if run.sampler == "cyclic" else Shuffled
    return kind(len(part), run.batch_size, run.seed)


def batches_of(run: Run, part: Part, material: Material, device: torch.device, *, order: Order | None) -> Batches:
    """A part as batches: on the device where it fits in memory, through workers where it lies in files."""
    channels_last = device.type == "cuda"
    if part.kind == "files":
        return Loader(
            cast(Any, part.inputs),
            part.labels,
            normalisation=material.normalisation,
            order=order,
            seed=run.seed,
            resize=RESIZE,
            crop=CROP,
            flip=run.augment != "none",
            workers=run.workers,
            device=device,
            channels_last=channels_last,
        )
    features = part.kind == "features"
    return Resident(
        cast(Any, part.inputs),
        part.labels,
        order=order,
        seed=run.seed,
        augmentation="none" if features else run.augment,
        normalisation=material.normalisation,
        device=device,
        channels_last=channels_last and not features,
    )


def input_shape(material: Material) -> tuple[int, ...]:
    """What the net reads: (C, H, W) or (F,)."""
    return material.shape or (3, *CROP)


def net_of(run: Run, material: Material, device: torch.device, stream: str = "init") -> Net:
    """The run's net, initialised from its own stream of the seed, or from a file."""
    shape = input_shape(material)
    features = shape[0] if len(shape) == 1 else None
    net = build(
        run.net, material.dataset.num_classes, features, generator=generator(run.seed, stream), dropout=run.dropout
    )
    if run.init_file is not None:
        if run.init_hash is not None:
            found = hashlib.sha256(Path(run.init_file).read_bytes()).hexdigest()
            if not found.startswith(run.init_hash):
                raise DataError(f"{run.init_file}: its sha256 is {found[:12]}..., the run asks for {run.init_hash}")
        load_weights(net, run.init_file, replace_classifier=True)
    if run.bn_momentum is not None:
        for module in net.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.momentum = run.bn_momentum
    net.to(device)
    if device.type == "cuda":
        for parameter in net.parameters():
            if parameter.ndim == 4:  # as the batches are laid out
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return net


def method_of(run: Run, material: Material, batches: Batches, trusted: Batches | None, net: Net) -> Method:
    """What teaches the net: a criterion with its schedules, a loss, or a method."""
    device, num_classes = batches.device, material.dataset.num_classes
    if run.weighting is not None:
        return ByCriterion(net, criterion_at(run))
    if run.loss is not None:
        from reweigh.losses.parse import loss_from

        counts = np.bincount(material.train.labels, minlength=num_classes).tolist()
        loss = loss_from(parse(run.loss), num_classes, counts).to(device)
        return ByCriterion(net, lambda step: loss)
    from reweigh.methods.parse import method_from

    context = Context(
        net=net,
        new_net=lambda stream: net_of(run, material, device, stream),
        batches=batches,
        labels=material.train.labels,
        num_classes=num_classes,
        total=run.iterations,
        epoch=epoch_of(run, material),
        trusted=trusted,
        seed=run.seed,
        device=device,
    )
    return method_from(parse(cast(str, run.method)), context)


def criterion_at(run: Run) -> Callable[[int], Criterion]:
    """step -> the criterion with its parameters' values at that step; built anew only when one has changed."""
    weighting_at = over_steps(weighting_from, parse(cast(str, run.weighting)), run.iterations)
    normalise: Normalise = None if run.normalise == "none" else run.normalise
    last: list[Any] = [None, None, None]

    def at(step: int) -> Criterion:
        weighting, taper = weighting_at(step), taper_at(run.taper, step, run.iterations)
        if last[0] is not weighting or last[1] != taper:
            last[:] = weighting, taper, Criterion(weighting, normalise=normalise, taper=taper)
        return cast(Criterion, last[2])

    at(0)  # refuse a bad setting before anything else is done
    return at


def epoch_of(run: Run, material: Material) -> int:
    """Iterations in one pass over the training part."""
    return max(1, len(material.train) // run.batch_size)


def autocast_of(run: Run, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """The context of forward passes: bfloat16 where the run says so, else nothing."""
    if run.precision == "bf16":
        return lambda: torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext


@contextmanager
def machine(run: Run) -> Iterator[None]:
    """torch's process-wide switches as the run needs them, put back afterwards."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    benchmark = torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(run.deterministic or deterministic)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = run.precision == "tf32"
    torch.backends.cudnn.benchmark = not run.deterministic
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic)
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = benchmark
