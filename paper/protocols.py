"""The protocols of the experiments as runs: the paper's text, its authors' program, and our own.

run = paper("cifar100", rate=0.4)                            # the paper's DM with 40 % symmetric noise
run = authors("cifar100", rate=0.4, weighting="GCE(0.7)")    # another weighting, trained as the authors did
run = dataclasses.replace(run, seed=1, device="cuda")        # any other change
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from paper.experiment import Choice, Option
from reweigh.lab.objectives import rescale_objective
from reweigh.lab.spec import Expression, Run, parse
from reweigh.lab.spec.schedule import rescale_schedule

BETA: dict[str, dict[float, dict[float, float]]] = {
    "cifar100": {
        0.5: {0: 6, 0.2: 6, 0.4: 8, 0.6: 8},
        0: {0: 2, 0.2: 1, 0.4: 1, 0.6: 1},
        1: {0: 6, 0.2: 8, 0.4: 8, 0.6: 2},
    },
    "cifar10": {0.5: {0: 8, 0.2: 8, 0.4: 8, 0.8: 8}},
    "clothing1m": {1: {0: 2}},
    "imdb": {0: {0: 0.9, 0.2: -0.52, 0.4: -0.33}},
}
"""data -> lam -> rate of symmetric noise -> published beta. The first lam of a data set is the default."""

BETAS = (1, 2, 4, 6, 8, 10, 12)
"""The values of beta that the paper's authors searched."""

HELD_OUT = 0.2  # fraction of the training data, with true labels, that scores a trial; as in the paper
SHORT = 0.25  # iterations of a trial, as a fraction of the run's
ITERATIONS = 20_000

# Fields whose default in Run is the protocol's value are left out: momentum 0.9, shuffled batches, taper "auto", ...
_PAPER: dict[str, Any] = {
    "net": "resnet44",
    "iterations": 30_000,
    "batch_size": 256,
    "augment": "pad-crop-flip",
    "lr": 0.1,
    "schedule": "step(0.1, at=[15000, 22000])",
    "weight_decay": 1e-4,
}
_AUTHORS: dict[str, Any] = _PAPER | {
    "net": "resnet44-projection",
    "sampler": "balanced",
    "augment": "resize-crop-flip",
    "inputs": "mean",
    "caffe_momentum": True,
    "weight_decay": 5e-4,
}
_DATA: dict[str, dict[str, Any]] = {  # changes that both protocols make for a data set
    "cifar100": {},
    "cifar10": {"net": "googlenet-v1"},
    "clothing1m": {
        "net": "resnet50",
        "iterations": 20_000,
        "batch_size": 32,
        "augment": "resize-crop-flip",
        "lr": 0.01,
        "schedule": "step(0.1, at=[10000, 15000])",
        "weight_decay": 2e-5,
    },
    "mars": {
        "net": "bn-inception",
        "iterations": 50_000,
        "batch_size": 180,
        "sampler": "shuffled",
        "augment": "resize-crop-flip",
        "lr": 0.01,
        "schedule": "halving(every=10000)",
        "weight_decay": 5e-4,
    },
    "imdb": {
        "net": "imdb",
        "text_vectors": "pv-dbow",
        "iterations": 10_000,
        "batch_size": 250,
        "sampler": "cyclic",
        "augment": "none",
        "inputs": "none",
        "lr": 0.01,
        "schedule": "inv(gamma=1e-5, power=0.75)",
        "caffe_momentum": True,
        "weight_decay": 2e-3,
        "evaluate_every": 500,
    },
}


def paper(
    data: str = "cifar100",
    *,
    rate: float = 0.0,
    lam: float | None = None,
    weighting: str | None = None,
    loss: str | None = None,
    method: str | None = None,
    seed: int = 0,
) -> Run:
    """Return a run by the protocol that the paper prints, for cifar100, cifar10, clothing1m, mars or imdb.

    CIFAR: ResNet-44 with parameter-free shortcuts (CIFAR-10: GoogLeNet V1), 30,000 iterations of 256 uniformly drawn
    images, pad-crop-flip, weight decay 1e-4, labels flipped independently with probability `rate`.

    Without weighting, loss or method, the run uses the paper's DM with its published beta for `lam` (default: the
    published lam). `normalise` and `taper` are "auto" because the printed learning rates belong to batch DN; for the
    paper's text, division by the integral and no taper, use `replace(run, normalise="unit", taper=0.0)`.

    The paper leaves some settings open. Chosen here: centred and scaled inputs; a batch size of 32 on Clothing1M, as in
    the work it follows; MARS batches drawn uniformly (for 60 persons x 3 frames use
    `replace(run, sampler="balanced", classes_per_batch=60)`); Caffe's momentum on IMDB, because its solver is Caffe's.
    Clothing1M and MARS start from ImageNet weights: set `init_file`.

    >>> run = paper("cifar100", rate=0.4)
    >>> run.weighting, run.weight_decay, run.sampler
    ('DM(0.5, 8)', 0.0001, 'shuffled')
    """
    fields = _PAPER | ({"noise_count": "independent"} if rate else {})
    return _run(fields, data, rate, lam, weighting=weighting, loss=loss, method=method, seed=seed)


def authors(
    data: str = "cifar100",
    *,
    rate: float = 0.0,
    lam: float | None = None,
    weighting: str | None = None,
    loss: str | None = None,
    method: str | None = None,
    seed: int = 0,
) -> Run:
    """Return a run as the paper's authors trained, as far as their public history shows; arguments as in `paper`.

    CIFAR: ResNet-44 with projection shortcuts, batches of 32 classes x 8 images by the noisy label, resize to 36, flip
    and crop 32, only the mean subtracted, weight decay 5e-4, Caffe's momentum, exact noise counts. `normalise` and
    `taper` are "auto", which for DM matches the authors: batch DN, then a taper of 5e-7. Clothing1M is class-balanced,
    too. The authors printed the best of 30 test checkpoints: compare with `best`, not `final`.

    >>> run = authors("cifar100", rate=0.4)
    >>> run.weighting, run.weight_decay, run.sampler
    ('DM(0.5, 8)', 0.0005, 'balanced')
    """
    return _run(_AUTHORS, data, rate, lam, weighting=weighting, loss=loss, method=method, seed=seed)


def _run(
    fields: dict[str, Any],
    data: str,
    rate: float,
    lam: float | None,
    *,
    weighting: str | None,
    loss: str | None,
    method: str | None,
    seed: int,
) -> Run:
    if (weighting, loss, method) == (None, None, None):
        weighting = published_dm(data, rate, lam)
    if data not in _DATA:
        raise ValueError(f"data is {data!r}; the paper's protocols exist for {', '.join(_DATA)}")
    noise = {"noise": "symmetric", "rate": rate} if rate else {}
    chosen = {"data": data, "weighting": weighting, "loss": loss, "method": method, "seed": seed}
    return Run(**(fields | _DATA[data] | noise | chosen))


def published_dm(data: str, rate: float = 0.0, lam: float | None = None) -> str:
    """Return the DM published for a data set and rate of symmetric noise; raise ValueError if there is none.

    >>> published_dm("imdb", 0.4), published_dm("clothing1m"), published_dm("cifar100", 0.6, lam=1)
    ('DM(0, -0.33)', 'DM(1, 2)', 'DM(1, 2)')
    """
    table = BETA.get(data, {})
    chosen = next(iter(table), 0.5) if lam is None else lam
    if rate not in table.get(chosen, {}):
        raise ValueError(f"no beta was published for {data}, rate={rate:g}, lam={chosen:g}; give a weighting")
    return f"DM({chosen:g}, {table[chosen][rate]:g})"


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
    """Return a run by our own protocol for CIFAR-10 and ResNet-56, for which the paper prints none.

    Parameter-free shortcuts, batches of 256, pad-crop-flip, momentum 0.9, learning rate 0.1 divided by 10 after 1/2
    and 22/30 of the iterations, weight decay 5e-4; symmetric noise without the true class, exact counts per class; the
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
    """Return the run with fewer iterations; times in its schedules and between evaluations shrink in proportion.

    Times are `at`, `every` and `until`, in the schedules of the learning rate and of parameters, and the epochs that a
    method counts, such as `warm_up` (`times` of its class). Rates per iteration or epoch stay as they are:
    `inv` (10,000 iterations of inv(gamma=1e-05, power=0.75) end at 0.93 of lr, 2,500 at 0.98), `decay` and `growth`.

    >>> short = shortened(replace(ours(weighting="CCE"), schedule="step(0.1, at=[10000, 15000])"), 0.1)
    >>> short.iterations, short.schedule, short.evaluate_every
    (2000, 'step(0.1, at=[1000, 1500])', 100)
    """
    iterations = max(1, round(run.iterations * factor))
    share = iterations / run.iterations

    def objective(text: str | None) -> str | None:
        return None if text is None else str(rescale_objective(parse(text), share))

    has_schedule = isinstance(run.taper, str) and run.taper != "auto"
    return replace(
        run,
        iterations=iterations,
        schedule=str(rescale_schedule(parse(run.schedule), share)),
        weighting=objective(run.weighting),
        loss=objective(run.loss),
        method=objective(run.method),
        taper=str(rescale_schedule(parse(str(run.taper)), share)) if has_schedule else run.taper,
        evaluate_every=max(1, round(run.evaluate_every * share)),
    )


def trial_of(run: Run, short: float = SHORT, evaluations: int | None = None) -> Run:
    """Return a short run on four fifths of the training data, scored on the rest with its true labels.

    By default it is evaluated as often as the run.
    """
    trial = shortened(replace(run, validation=HELD_OUT), short)
    return trial if evaluations is None else replace(trial, evaluate_every=-(-trial.iterations // evaluations))


def search(
    parameter: str,
    values: Sequence[float],
    make: Callable[[float], Run],
    short: float = SHORT,
    evaluations: int | None = None,
) -> Choice:
    """Return a choice among values of a parameter, made by short trials on a hold-out.

    Args:
        parameter: name of what is chosen, such as "beta".
        values: to try, in order.
        make: value -> run.
        short: iterations of a trial, as a fraction of the run's.
        evaluations: of a trial (default: as many as the run has); the last one gives the score.
    """
    options = (Option(f"{value:g}", trial_of(make(value), short, evaluations), make(value)) for value in values)
    return Choice(parameter, tuple(options))


def search_beta(make: Callable[..., Run], lam: float, betas: Sequence[float] = BETAS, short: float = SHORT) -> Choice:
    """Return a choice of beta for DM(lam, beta); `make(weighting=...)` returns a run."""
    return search("beta", betas, lambda beta: make(weighting=f"DM({lam:g}, {beta:g})"), short)


def search_rate(run: Run, rates: Sequence[float] = (0.01, 0.03, 0.1, 0.3), short: float = SHORT) -> Choice:
    """Return a choice of the run's learning rate. Trials are evaluated twice, since only their end counts."""
    return search("lr", rates, lambda lr: replace(run, lr=lr), short, evaluations=2)


def noisy_choice(choice: Choice) -> Choice:
    """Return a choice whose trials are scored on labels as noisy as those that they train on."""
    options = (replace(each, trial=replace(each.trial, validation_labels="noisy")) for each in choice.options)
    return replace(choice, options=tuple(options))


def dm_parameters(weighting: str | None) -> tuple[float, float] | None:
    """Return (lam, beta) of a DM whose parameters are plain numbers, None for anything else.

    >>> dm_parameters("DM(0.5, 8)"), dm_parameters("CCE"), dm_parameters("DM(1, linear(0, 16, until=0.1))")
    ((0.5, 8.0), None, None)
    """
    expression = None if weighting is None else parse(weighting)
    if not isinstance(expression, Expression) or expression.name != "DM":
        return None
    values = dict(expression.bind(("lam", "beta")).kwargs)
    lam, beta = values.get("lam"), values.get("beta")
    return (float(lam), float(beta)) if isinstance(lam, int | float) and isinstance(beta, int | float) else None
