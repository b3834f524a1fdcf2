"""Runs for experiments: our own protocol, shorter copies, and choices by search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from paper.values import Choice, Option
from reweigh.lab.spec import Run, parse
from reweigh.lab.spec.schedule import rescale_schedule

BETAS = (1, 2, 4, 6, 8, 10, 12)
"""Where the paper's authors looked for beta."""

HELD_OUT = 0.2  # of the training part, with its true labels, as in the paper
SHORT = 0.25  # of a run's iterations is a trial's

ITERATIONS = 20_000


def ours(
    rate: float = 0.4,
    *,
    weighting: str | None = None,
    loss: str | None = None,
    method: str | None = None,
    data: str = "cifar10",
    net: str = "resnet56",
    iterations: int = ITERATIONS,
) -> Run:
    """Our own protocol for CIFAR-10 and ResNet-56, where the paper leaves open how it trained.

    Parameter-free shortcuts, batches of 256, pad-crop-flip, momentum .9, learning rate .1 divided by 10 after 1/2 and
    22/30 of the iterations, weight decay 5e-4; the true class excluded from the noise, exact counts per class; the
    body of the net in bfloat16, logits and weights in float32.

    >>> ours(weighting="GCE(0.7)").schedule
    'step(0.1, at=[0.5, 0.7333])'
    """
    return Run(
        data=data,
        net=net,
        weighting=weighting,
        loss=loss,
        method=method,
        noise="symmetric" if rate else None,
        rate=rate or None,
        iterations=iterations,
        batch_size=256,
        augment="pad-crop-flip",
        lr=0.1,
        schedule="step(0.1, at=[0.5, 0.7333])",
        weight_decay=5e-4,
        precision="bf16",
        evaluate_every=max(1, iterations // 20),
    )


def shortened(run: Run, factor: float) -> Run:
    """The run with fewer iterations: times in its schedules (`at`, `every`, `until`) and between evaluations shrink.

    So what steps, halves or goes by fractions keeps its course, be it the learning rate or a parameter of what the run
    is taught by, and so does a method with its epochs (`warm_up` and the like: `times` of the class). `inv`
    has no time but a rate per iteration, which stays: of 10,000 iterations by inv(gamma=1e-05, power=0.75) the whole
    ends at 0.93 of lr, a quarter at 0.98. So does what a method does at every epoch or iteration (`decay`, `growth`).

    >>> short = shortened(replace(ours(weighting="CCE"), schedule="step(0.1, at=[10000, 15000])"), 0.1)
    >>> short.iterations, short.schedule, short.evaluate_every
    (2000, 'step(0.1, at=[1000, 1500])', 100)
    """
    from reweigh.lab.objectives import rescale_objective

    iterations = max(1, round(run.iterations * factor))
    share = iterations / run.iterations

    def taught(text: str | None) -> str | None:
        return None if text is None else str(rescale_objective(parse(text), share))

    by_schedule = isinstance(run.taper, str) and run.taper != "auto"
    return replace(
        run,
        iterations=iterations,
        schedule=str(rescale_schedule(parse(run.schedule), share)),
        weighting=taught(run.weighting),
        loss=taught(run.loss),
        method=taught(run.method),
        taper=str(rescale_schedule(parse(str(run.taper)), share)) if by_schedule else run.taper,
        evaluate_every=max(1, round(run.evaluate_every * share)),
    )


def trial_of(run: Run, short: float = SHORT, looks: int | None = None) -> Run:
    """The run on four fifths of the training data, judged by the rest with its true labels, and shortened.

    With `looks` it is evaluated so often; otherwise as often as the run.
    """
    trial = shortened(replace(run, validation=HELD_OUT), short)
    return trial if looks is None else replace(trial, evaluate_every=-(-trial.iterations // looks))


def search(
    what: str, values: Sequence[Any], make: Callable[[Any], Run], short: float = SHORT, looks: int | None = None
) -> Choice:
    """The best of some values by short runs on the 80/20 split.

    Args:
        what: the name of what is chosen.
        values: to try.
        make: value -> the run with it.
        short: length of a trial, as a share of the run's.
        looks: evaluations of a trial, if not as many as the run's; the last one judges.
    """
    options = (Option(f"{value:g}", trial_of(make(value), short, looks), make(value)) for value in values)
    return Choice(what, tuple(options))


def search_beta(make: Callable[..., Run], lam: float, betas: Sequence[float] = BETAS, short: float = SHORT) -> Choice:
    """DM(lam, beta) with the beta that is found by search; `make` takes a weighting."""
    return search("beta", betas, lambda beta: make(weighting=f"DM({lam:g}, {beta:g})"), short)


def search_rate(run: Run, rates: Sequence[float] = (0.01, 0.03, 0.1, 0.3), short: float = SHORT) -> Choice:
    """The run at its own best learning rate. A trial is looked at twice: it is judged by its end."""
    return search("lr", rates, lambda lr: replace(run, lr=lr), short, looks=2)
