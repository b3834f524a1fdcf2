"""The two protocols of the paper as complete runs: `paper`, as the paper says, and `authors`, as they ran.

run = paper("cifar100", rate=0.4)                                # its DM, 40 % symmetric noise
run = authors("cifar100", rate=0.4, weighting="GCE(0.7)")       # a rival under the same protocol
run = dataclasses.replace(run, seed=1, device="cuda")           # anything else
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reweigh.lab.spec.run import Run

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
"""data -> lam -> rate of symmetric noise -> the beta that was published; the first lam is the usual one."""

_CLOTHING1M: dict[str, Any] = {
    "net": "resnet50",
    "iterations": 20_000,
    "batch_size": 32,
    "augment": "resize-crop-flip",
    "lr": 0.01,
    "schedule": "step(0.1, at=[10000, 15000])",
    "weight_decay": 2e-5,
}
_MARS: dict[str, Any] = {
    "net": "bn-inception",
    "iterations": 50_000,
    "batch_size": 180,
    "augment": "resize-crop-flip",
    "lr": 0.01,
    "schedule": "halving(every=10000)",
    "weight_decay": 5e-4,
}
_IMDB: dict[str, Any] = {
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
    """The protocol the paper prints, for cifar100, cifar10, clothing1m, mars or imdb.

    CIFAR: ResNet-44 with parameter-free shortcuts (CIFAR-10: GoogLeNet V1), 30,000 iterations of 256 uniformly drawn
    images, pad-crop-flip, weight decay 1e-4, labels flipped independently with probability `rate`.

    Without weighting, loss or method it is the paper's DM with the published lam (or the one given) and beta. DN and
    taper are "auto" because the printed learning rates belong to batch DN; the paper's own words, division by the
    integral and no taper, are `replace(run, normalise="unit", taper=0.0)`. Not printed, and chosen here: inputs
    centred and scaled; the batch of Clothing1M, 32, as in the work it follows; the 180 frames of a batch of MARS drawn
    evenly from all (60 persons x 3 frames is `replace(run, sampler="balanced", classes_per_batch=60)`); for IMDB
    Caffe's momentum, since the solver printed is Caffe's. Clothing1M and MARS start from ImageNet weights: give
    `init_file`.

    >>> run = paper("cifar100", rate=0.4)
    >>> run.weighting, run.weight_decay, run.sampler
    ('DM(0.5, 8)', 0.0001, 'shuffled')
    """
    if (weighting, loss, method) == (None, None, None):
        weighting = published_dm(data, rate, lam)
    run = Run(
        data="cifar100",
        data_root=None,
        data_hash=None,
        label_column=None,
        text_column=None,
        test_data=None,
        text_vectors="hashed",
        image_size=None,
        noise="symmetric" if rate else None,
        rate=rate or None,
        include_true=False,
        noise_count="independent" if rate else "per_class",
        noise_seed=None,
        imbalance=None,
        validation=0.0,
        validation_labels="clean",
        fold=None,
        threshold_set=None,
        net="resnet44",
        dropout=0.0,
        bn_momentum=None,
        init_file=None,
        init_hash=None,
        weighting=weighting,
        loss=loss,
        method=method,
        normalise="auto",
        taper="auto",
        iterations=30_000,
        batch_size=256,
        sampler="shuffled",
        classes_per_batch=32,
        augment="pad-crop-flip",
        inputs="mean-std",
        optimiser="momentum",
        lr=0.1,
        schedule="step(0.1, at=[15000, 22000])",
        momentum=0.9,
        caffe_momentum=False,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-4,
        decay_exempt=False,
        seed=seed,
        precision="fp32",
        deterministic=False,
        device="auto",
        workers=0,
        evaluate_every=1000,
        checkpoint_every=None,
        record_p=False,
        record_margins=False,
    )
    return _for_data(
        run,
        data,
        cifar100={},
        cifar10={"net": "googlenet-v1"},
        clothing1m=_CLOTHING1M,
        mars=_MARS,
        imdb=_IMDB,
    )


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
    """What the paper's authors really ran, as far as their public history tells; arguments as for `paper`.

    CIFAR: ResNet-44 with projection shortcuts, batches of 32 classes x 8 images by the noisy label, resize to 36, flip
    and crop 32, only the mean subtracted, weight decay 5e-4, Caffe's momentum, exact noise counts. DN and taper are
    "auto", which for DM is theirs: batch DN, then a taper of 5e-7; their plain losses keep their own scale.
    Clothing1M is class-balanced, too. They printed the best of 30 test checkpoints: compare with `best`, not `final`.

    >>> run = authors("cifar100", rate=0.4)
    >>> run.weighting, run.weight_decay, run.sampler
    ('DM(0.5, 8)', 0.0005, 'balanced')
    """
    if (weighting, loss, method) == (None, None, None):
        weighting = published_dm(data, rate, lam)
    run = Run(
        data="cifar100",
        data_root=None,
        data_hash=None,
        label_column=None,
        text_column=None,
        test_data=None,
        text_vectors="hashed",
        image_size=None,
        noise="symmetric" if rate else None,
        rate=rate or None,
        include_true=False,
        noise_count="per_class",
        noise_seed=None,
        imbalance=None,
        validation=0.0,
        validation_labels="clean",
        fold=None,
        threshold_set=None,
        net="resnet44-projection",
        dropout=0.0,
        bn_momentum=None,
        init_file=None,
        init_hash=None,
        weighting=weighting,
        loss=loss,
        method=method,
        normalise="auto",
        taper="auto",
        iterations=30_000,
        batch_size=256,
        sampler="balanced",
        classes_per_batch=32,
        augment="resize-crop-flip",
        inputs="mean",
        optimiser="momentum",
        lr=0.1,
        schedule="step(0.1, at=[15000, 22000])",
        momentum=0.9,
        caffe_momentum=True,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=5e-4,
        decay_exempt=False,
        seed=seed,
        precision="fp32",
        deterministic=False,
        device="auto",
        workers=0,
        evaluate_every=1000,
        checkpoint_every=None,
        record_p=False,
        record_margins=False,
    )
    return _for_data(
        run,
        data,
        cifar100={},
        cifar10={"net": "googlenet-v1"},
        clothing1m=_CLOTHING1M,
        mars=_MARS | {"sampler": "shuffled"},
        imdb=_IMDB,
    )


def published_dm(data: str, rate: float = 0.0, lam: float | None = None) -> str:
    """The DM that was published for a data set and rate of symmetric noise; a ValueError where none was.

    >>> published_dm("imdb", 0.4), published_dm("clothing1m"), published_dm("cifar100", 0.6, lam=1)
    ('DM(0, -0.33)', 'DM(1, 2)', 'DM(1, 2)')
    """
    table = BETA.get(data, {})
    chosen = next(iter(table), 0.5) if lam is None else lam
    if rate not in table.get(chosen, {}):
        raise ValueError(f"no beta was published for {data}, rate={rate:g}, lam={chosen:g}; give a weighting")
    return f"DM({chosen:g}, {table[chosen][rate]:g})"


def _for_data(run: Run, data: str, **changes: dict[str, Any]) -> Run:
    if data not in changes:
        raise ValueError(f"data is {data!r}; the paper's protocols exist for {', '.join(changes)}")
    return replace(run, data=data, **changes[data])
