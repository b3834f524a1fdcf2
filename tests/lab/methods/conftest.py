"""A small problem, its context, and a minimal training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from reweigh.lab.batches import Resident, Shuffled
from reweigh.lab.methods import Context, Method
from reweigh.lab.nets import build
from reweigh.lab.objectives import method_from
from reweigh.lab.spec import parse
from reweigh.noise import symmetric
from reweigh.streams import generator

CLASSES, FEATURES, EPOCHS, BATCH, PER_EPOCH = 4, 6, 6, 32, 5


def blobs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    means = 2 * np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % CLASSES
    return (means[labels] + rng.normal(size=(n, FEATURES))).astype(np.float32), labels


def painted(inputs: np.ndarray) -> np.ndarray:
    colours = (128 + 16 * inputs).clip(0, 255).astype(np.uint8).reshape(-1, 2, 1, 3)
    return colours.repeat(4, axis=1).repeat(4, axis=2)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Use one thread: the tensors here are small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_context() -> Callable[..., Context]:
    """Gaussian blobs with 40 % symmetric noise and an MLP; `trusted=True` adds 40 clean examples.

    For a ResNet the blobs are pictures of two colours.
    """

    def make(trusted: bool = True, rate: float = 0.4, net: str = "mlp-16", total: int = EPOCHS * PER_EPOCH) -> Context:
        def new_net(stream: str) -> nn.Module:
            return build(net, CLASSES, None if pictures else FEATURES, generator=generator(3, stream))

        pictures = "resnet" in net
        inputs, clean = blobs(BATCH * PER_EPOCH, seed=1)
        labels = symmetric(clean, rate, seed=2).labels
        aside, right = blobs(40, seed=4)
        if pictures:
            inputs, aside = painted(inputs), painted(aside)
        return Context(
            net=new_net("initial"),
            new_net=new_net,
            batches=Resident(inputs, labels, order=Shuffled(len(labels), BATCH, seed=5)),
            labels=labels,
            num_classes=CLASSES,
            total=total,
            epoch=PER_EPOCH,
            learning_rate=lambda step: 0.05 if step < 10 else 0.005,  # whatever the optimiser of a test has
            trusted=Resident(aside, right) if trusted else None,
            seed=3,
            device=torch.device("cpu"),
        )

    return make


@pytest.fixture
def make_method(make_context: Callable[..., Context]) -> Callable[..., Any]:
    """Build the method of an expression in a new context."""
    return lambda text, **settings: method_from(parse(text), make_context(**settings))


@pytest.fixture
def train() -> Callable[..., None]:
    """Run iterations [start, stop) like the training loop, in bfloat16 with `low`."""

    def run(
        method: Method, optimiser: torch.optim.Optimizer, context: Context, start: int, stop: int, low: bool = False
    ) -> None:
        for step in range(start, stop):
            method.trainable.train()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
                loss = method.loss(context.batches.batch(step), step)
            assert loss.ndim == 0
            assert loss.isfinite()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if (step + 1) % context.epoch == 0:
                method.epoch_end(step // context.epoch)

    return run
