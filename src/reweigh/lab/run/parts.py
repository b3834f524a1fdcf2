"""Build the parts of a run: batches, net and objective."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from reweigh.criterion import Criterion
from reweigh.emphasis import potential
from reweigh.errors import DataError
from reweigh.functional import Normalise, Taper
from reweigh.lab.batches import Balanced, Cyclic, Loader, Order, Resident, Shuffled
from reweigh.lab.data.dataset import Part
from reweigh.lab.methods.criterion import ByCriterion
from reweigh.lab.methods.protocol import Context, Method
from reweigh.lab.nets.net import Net
from reweigh.lab.nets.registry import build, needs_large_stem
from reweigh.lab.nets.weights import load_weights
from reweigh.lab.own import own_net
from reweigh.lab.record.files import sha256_of
from reweigh.lab.run.material import Material
from reweigh.lab.spec import Expression, Run, is_scheduled, parse
from reweigh.lab.train.distributed import IgnoringCriterion, Ranks, ShardLoss
from reweigh.lab.train.schedules import learning_rate, over_steps, taper_at, weighting_in_tensors
from reweigh.lab.weightings import weighting_from
from reweigh.streams import generator
from reweigh.weightings import ForwardSymmetric, Weighting

Batches = Resident | Loader
RESIZE, CROP = (256, 256), (224, 224)  # of image files, as in the paper


def order_of(run: Run, part: Part) -> Order:
    """Return the order of the examples."""
    if run.sampler == "balanced":
        return Balanced(part.labels, run.batch_size, run.seed, classes=run.classes_per_batch)
    kind = Cyclic if run.sampler == "cyclic" else Shuffled
    return kind(len(part), run.batch_size, run.seed)


def batches_of(
    run: Run,
    part: Part,
    material: Material,
    device: torch.device,
    *,
    order: Order | None,
    shard: slice | None = None,
) -> Batches:
    """Return a part as batches: on the device if it is in memory, through workers if it is in files."""
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
            augment=run.augment != "none",
            distorts=run.augment == "strong",
            workers=run.workers,
            device=device,
            channels_last=channels_last,
            shard=shard,
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
        shard=shard,
    )


class Parts(NamedTuple):
    """The parts of a run's data as batches; `trusted` has true labels, for methods that need some."""

    train: Batches
    test: Batches | None
    validation: Batches | None
    trusted: Batches | None


def parts_of(run: Run, material: Material, device: torch.device, ranks: Ranks | None = None) -> Parts:
    """Return all parts; `trusted` is the held-out part if its labels are clean, with an order."""
    held, test = material.validation, material.dataset.test
    trust = held is not None and run.validation > 0 and run.validation_labels == "clean"
    shard = ranks.shard(run.batch_size) if ranks is not None and ranks.size > 1 else None
    return Parts(
        batches_of(run, material.train, material, device, order=order_of(run, material.train), shard=shard),
        batches_of(run, test, material, device, order=None) if len(test) else None,
        None if held is None else batches_of(run, held, material, device, order=None),
        batches_of(run, held, material, device, order=order_of(run, held)) if held is not None and trust else None,
    )


def check_augments(run: Run, material: Material) -> None:
    """Raise ValueError for an augmentation of features, which include images flattened for an MLP."""
    if run.augment != "none" and material.train.kind == "features":
        raise ValueError(
            f"augment is {run.augment!r}, which has no effect in this run: net {run.net!r} reads features, not "
            "images; use 'none', or a net for images"
        )


def input_shape(material: Material) -> tuple[int, ...]:
    """Return the shape of one input of the net: (C, H, W) or (F,)."""
    return material.shape or (3, *CROP)


def net_of(run: Run, material: Material, device: torch.device, stream: str = "init") -> Net:
    """Return the run's net, initialised from a stream of the seed, or from a file."""
    shape = input_shape(material)
    features = shape[0] if len(shape) == 1 else None
    source, num_classes = generator(run.seed, stream), material.dataset.num_classes
    net: Net
    if ":" in run.net:
        net = own_net(run.net, num_classes, shape, source, run.dropout)
    else:
        large = needs_large_stem(shape)
        net = build(run.net, num_classes, features, generator=source, dropout=run.dropout, large=large)
    if run.init_file is not None:
        digest = sha256_of(Path(run.init_file))
        if not digest.startswith(str(run.init_hash)):
            raise DataError(f"{run.init_file}: its sha256 is {digest[:12]}..., but the run requires {run.init_hash}")
        own = deepcopy(net.classifier.state_dict())
        load_weights(net, run.init_file, replace_classifier=True)
        if stream != "init":  # a second net must differ from the first
            net.classifier.load_state_dict(own)
    if run.bn_momentum is not None:
        for module in net.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                module.momentum = run.bn_momentum
    net.rounds_logits = run.precision == "bf16-logits"
    net.to(device)
    if device.type == "cuda":
        for parameter in net.parameters():
            if parameter.ndim == 4:  # the layout of the batches
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return net


def objective_of(
    run: Run,
    material: Material,
    batches: Batches,
    trusted: Batches | None,
    net: Net,
    ranks: Ranks | None = None,
) -> Objective:
    """Return the run's objective: a criterion with its schedules, a loss, or a method."""
    ranks = ranks or Ranks()
    device, num_classes = batches.device, material.dataset.num_classes
    if run.weighting is not None:
        criterion_at, set_parameters, obstacle = criterion_of(run, device, ranks.group)
        _check_classes(run, criterion_at(0).weighting, num_classes - (run.threshold_set is not None))
        if not ranks.counted(run.batch_size):
            return Objective(
                ByCriterion(net, lambda step: IgnoringCriterion(criterion_at(step))), set_parameters, obstacle
            )
        return Objective(ByCriterion(net, criterion_at), set_parameters, obstacle)
    if run.loss is not None:
        from reweigh.lab.objectives import loss_from

        counts = np.bincount(material.train.labels, minlength=num_classes).tolist()
        expression = parse(run.loss)

        def loss_of(now: Expression) -> nn.Module:
            loss = loss_from(now, num_classes, counts).to(device)
            return loss if ranks.size == 1 else ShardLoss(loss, ranks, run.batch_size)

        obstacle = "its loss is scheduled" if is_scheduled(expression) else None
        return Objective(ByCriterion(net, over_steps(loss_of, expression, run.iterations)), obstacle=obstacle)
    if ranks.size > 1:
        raise ValueError(f"method {run.method} needs complete batches; run it in one process, not {ranks.size}")
    from reweigh.lab.objectives import method_from

    context = Context(
        net=net,
        new_net=lambda stream: net_of(run, material, device, stream),
        batches=batches,
        labels=material.train.labels,
        num_classes=num_classes,
        total=run.iterations,
        epoch=epoch_of(run, material),
        learning_rate=rate_of(run),
        trusted=trusted,
        seed=run.seed,
        device=device,
    )
    return Objective(method_from(parse(cast(str, run.method)), context))


def mean_objective(run: Run, cross_entropy: Tensor, step: int) -> float | None:
    """Return the mean over examples of what a weighting's gradient minimises; None where that is not known.

    Under a normalisation over the batch it is that of w itself, since such a gradient has no potential of its own.
    """
    if run.weighting is None:
        return None
    settings = criterion_of(run, torch.device("cpu"))[0](step).settings
    margins = -(cross_entropy + (-torch.expm1(-cross_entropy)).log())  # of p = exp(-cross entropy)
    try:
        return potential(settings.weighting, margins, settings.taper).mean().item()
    except ValueError:  # w is infinite at p = 1
        return None


def _check_classes(run: Run, part: Any, num_classes: int) -> None:
    """Raise ValueError if a weighting, or a part of it, is for another number of classes than the data have."""
    if isinstance(part, ForwardSymmetric) and part.num_classes != num_classes:
        raise ValueError(
            f"weighting {run.weighting} is for {part.num_classes} classes, but {run.data} has {num_classes}"
        )
    inner = vars(part).values() if isinstance(part, Weighting) else part if isinstance(part, tuple) else ()
    for each in inner:
        _check_classes(run, each, num_classes)


class Objective(NamedTuple):
    """A method, a function that sets its scheduled parameters to a step, and why it cannot be captured, if so."""

    method: Method
    set_parameters: Callable[[int], None] = lambda step: None
    obstacle: str | None = None


def criterion_of(
    run: Run, device: torch.device, group: Any = None
) -> tuple[Callable[[int], Criterion], Callable[[int], None], str | None]:
    """Return step -> criterion, a function that sets its parameters to a step, and why it cannot be captured, or None.

    On the CPU a new criterion is built when a scheduled number changes. On a GPU there is one criterion whose numbers
    are tensors, which a captured step reads from memory.
    """
    expression = parse(cast(str, run.weighting))
    normalise: Normalise = None if run.normalise == "none" else run.normalise
    tapers = isinstance(run.taper, str) and run.taper != "auto"
    scheduled = tapers or is_scheduled(expression)

    def taper(step: int) -> Any:
        return taper_at(run.taper, step, run.iterations)

    def build(weighting: Weighting, taper: Taper) -> Criterion:
        return Criterion(weighting, normalise=normalise, taper=taper, process_group=group)

    held = weighting_in_tensors(expression, run.iterations, device) if device.type == "cuda" and scheduled else None
    if held is not None and normalise != "unit":
        weighting, set_weighting = held
        cell = torch.tensor(taper(0), dtype=torch.float64, device=device) if tapers else None
        criterion = build(weighting, taper(0) if cell is None else cell)

        def set_parameters(step: int) -> None:
            set_weighting(step)
            if cell is not None:
                cell.fill_(taper(step))

        return lambda step: criterion, set_parameters, None
    weighting_at = over_steps(weighting_from, expression, run.iterations)
    last: list[Any] = [None, None, None]

    def at(step: int) -> Criterion:
        weighting, now = weighting_at(step), taper(step)
        if last[0] is not weighting or last[1] != now:
            last[:] = weighting, now, build(weighting, now)
        return cast(Criterion, last[2])

    at(0)  # raises early for invalid settings
    return at, lambda step: None, "its weighting is scheduled on the host" if scheduled else None


def rate_of(run: Run) -> Callable[[int], float]:
    """Return step -> learning rate."""
    schedule = parse(run.schedule)
    return lambda step: learning_rate(run.lr, schedule, step, run.iterations)


def epoch_of(run: Run, material: Material) -> int:
    """Return the iterations of one pass over the training part."""
    return max(1, len(material.train) // run.batch_size)
