"""The frozen `Run`: everything that decides a result, flat and typed, and a hash that names it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

from reweigh.checks import Check, flag, integer, matching, nearest, number, one_of, optional, pair, text
from reweigh.lab.spec.checks import (
    data_place,
    expression,
    fold_of,
    objective,
    picture_size,
    place,
    rate_schedule,
    taper_value,
)
from reweigh.lab.spec.expression import parse

Count: TypeAlias = Literal["per_class", "overall", "independent"]
Normalise: TypeAlias = Literal["auto", "batch", "class", "unit", "none"]
TextVectors: TypeAlias = Literal["hashed", "pv-dbow"]
Sampler: TypeAlias = Literal["shuffled", "balanced", "cyclic"]
Augment: TypeAlias = Literal["none", "pad-crop-flip", "resize-crop-flip"]
Inputs: TypeAlias = Literal["mean-std", "mean", "none"]
Optimiser: TypeAlias = Literal["sgd", "momentum", "nesterov", "adam", "adam-caffe", "adamw"]
Precision: TypeAlias = Literal["fp32", "tf32", "bf16", "bf16-logits"]

_SEED = integer(0)
_HASH = matching("[0-9a-f]{12,64}", "12 to 64 hexadecimal digits")
_FRACTION = number(0, 1, below=True)
_WHERE = object()  # marks a field that says where or how fast, not what: it is left out of the hash
_RECORD = object()  # marks a field that says what is written down, not what is learned


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run. Exactly one of weighting, loss and method says what the net is taught by.

    Values are checked and brought to canonical form, and a field that the others make meaningless must keep its
    default, so that the same run has one name.

    >>> run = Run(data="digits", net="mlp", weighting="DM(.5, 8.0)", noise="symmetric", rate=0.4)
    >>> run.weighting
    'DM(0.5, 8)'
    >>> run.folder_name() == f"digits-mlp-DM-0.5-8-symmetric-0.4-s0-{run.hash()}"
    True
    >>> Run.from_mapping({"data": "digits", "net": "mlp", "weighting": "CCE", "weight_dcay": 0})
    Traceback (most recent call last):
        ...
    ValueError: a run has no field 'weight_dcay'; did you mean 'weight_decay'?
    """

    # what is learned from
    data: Annotated[str, data_place, "data set, by name or path"]
    data_root: Annotated[str | None, optional(place), _WHERE, "folder or file the data lie in"] = None
    data_hash: Annotated[str | None, optional(_HASH), "how the hash of the data must begin"] = None
    label_column: Annotated[str | None, optional(text), "label column of a table, if not 'label'"] = None
    text_column: Annotated[str | None, optional(text), "text column of a table"] = None
    test_data: Annotated[str | None, optional(data_place), "table with the test rows"] = None
    text_vectors: Annotated[
        TextVectors, one_of(*get_args(TextVectors)), "how texts become vectors; pv-dbow is for imdb"
    ] = "hashed"
    image_size: Annotated[
        int | str | None,
        optional(picture_size),
        "side (or height x width, as in 128x64) that image files are brought to and kept in memory at",
    ] = None
    noise: Annotated[str | None, optional(expression), "kind of label noise"] = None
    rate: Annotated[float | None, optional(number(0, 1)), "nominal noise rate"] = None
    include_true: Annotated[bool, flag, "symmetric noise may draw the true class again"] = False
    noise_count: Annotated[Count, one_of(*get_args(Count)), "how many labels are flipped"] = "per_class"
    noise_seed: Annotated[int | None, optional(_SEED), "seed of the noise, if not that of the run"] = None
    imbalance: Annotated[str | None, optional(expression), "imbalance of the classes"] = None
    validation: Annotated[float, _FRACTION, "fraction of the training part held out for validation"] = 0.0
    validation_labels: Annotated[
        Literal["clean", "noisy"], one_of("clean", "noisy"), "labels of the validation part"
    ] = "clean"
    fold: Annotated[
        str | None, optional(fold_of), "fold held out with its labels as given, as in 2/5: the second of five"
    ] = None
    threshold_set: Annotated[
        int | None, optional(integer(0)), "which N / (C + 1) examples get a class of their own, for their margins"
    ] = None

    # what learns
    net: Annotated[str, text, "net, by name"]
    dropout: Annotated[float, _FRACTION, "dropout before the classifier"] = 0.0
    bn_momentum: Annotated[
        float | None, optional(number(0, 1, above=True)), "momentum of the batch norms, torch's way, if not the net's"
    ] = None
    init_file: Annotated[str | None, optional(place), _WHERE, "file of weights to start from"] = None
    init_hash: Annotated[str | None, optional(_HASH), "how the sha256 of that file must begin; goes with it"] = None

    # what it is taught by
    weighting: Annotated[str | None, optional(objective), "weighting, as in 'DM(lam=0.5, beta=8)'"] = None
    loss: Annotated[str | None, optional(objective), "loss that is not a weighting, as in 'BootstrapHard(0.8)'"] = None
    method: Annotated[str | None, optional(objective), "method, as in 'CoTeaching(forget_rate=0.4)'"] = None
    normalise: Annotated[Normalise, one_of(*get_args(Normalise)), "derivative normalisation"] = "auto"
    taper: Annotated[float | str, taper_value, "taper: auto, a number, or a schedule"] = "auto"

    # how
    iterations: Annotated[int, integer(1), "iterations"] = 10_000
    batch_size: Annotated[int, integer(1), "examples in a batch"] = 128
    sampler: Annotated[Sampler, one_of(*get_args(Sampler)), "order of the examples"] = "shuffled"
    classes_per_batch: Annotated[int, integer(1), "classes in a balanced batch, at most"] = 32
    augment: Annotated[Augment, one_of(*get_args(Augment)), "augmentation of images"] = "none"
    inputs: Annotated[Inputs, one_of(*get_args(Inputs)), "normalisation of the inputs"] = "mean-std"
    optimiser: Annotated[Optimiser, one_of(*get_args(Optimiser)), "optimiser"] = "momentum"
    lr: Annotated[float, number(0, above=True), "learning rate at the start"] = 0.05
    schedule: Annotated[str, rate_schedule, "learning-rate schedule"] = "cosine"
    momentum: Annotated[float, _FRACTION, "momentum"] = 0.9
    caffe_momentum: Annotated[bool, flag, "Caffe's momentum: the rate is inside the velocity"] = False
    betas: Annotated[tuple[float, float], pair(_FRACTION), "Adam's two betas"] = (0.9, 0.999)
    eps: Annotated[float, number(0, above=True), "Adam's epsilon; Caffe's delta"] = 1e-8
    weight_decay: Annotated[float, number(0), "weight decay"] = 5e-4
    decay_exempt: Annotated[bool, flag, "no weight decay on biases and norms"] = False
    seed: Annotated[int, _SEED, "seed of everything random"] = 0
    precision: Annotated[
        Precision, one_of(*get_args(Precision)), "arithmetic of the net's body; bf16-logits rounds the logits, too"
    ] = "fp32"
    deterministic: Annotated[bool, flag, "only deterministic kernels"] = False
    device: Annotated[
        str,
        matching("auto|(cpu|cuda|mps|xpu)(:[0-9]+)?", "auto, cpu, cuda, cuda:N, mps or xpu"),
        _WHERE,
        "device",
    ] = "auto"
    workers: Annotated[int, integer(0, 1024), _WHERE, "processes that decode image files"] = 0

    # what is recorded
    evaluate_every: Annotated[int, integer(1), _RECORD, "iterations between evaluations"] = 1000
    checkpoint_every: Annotated[
        int | None, optional(integer(1)), _WHERE, _RECORD, "iterations between checkpoints, if not at evaluations"
    ] = None
    record_p: Annotated[bool, flag, _RECORD, "record p of every training example at every evaluation"] = False
    record_margins: Annotated[
        bool, flag, _RECORD, "record every training example's margin, and the class it is to, at every evaluation"
    ] = False

    def __post_init__(self) -> None:
        for field in describe():
            object.__setattr__(self, field.name, field.check(field.name, getattr(self, field.name)))
        _check_together(self)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object]) -> Run:
        """The run of a mapping such as `to_mapping` or a JSON file gives; unknown keys are refused."""
        names = [field.name for field in describe()]
        for key in mapping:
            if key not in names:
                raise ValueError(f"a run has no field {key!r}; {nearest(str(key), names)}")
        for key in ("data", "net"):
            if key not in mapping:
                raise ValueError(f"a run needs {key!r}")
        values: dict[str, Any] = dict(mapping)
        return cls(**values)

    def to_mapping(self) -> dict[str, Any]:
        """The fields that differ from their defaults, in values that JSON has."""
        values = {field.name: getattr(self, field.name) for field in describe()}
        changed = {field.name: values[field.name] for field in describe() if values[field.name] != field.default}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in changed.items()}

    def to_json(self) -> str:
        """`to_mapping` as JSON text."""
        return json.dumps(self.to_mapping(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Run:
        """The run of a JSON text."""
        mapping = json.loads(text)
        if not isinstance(mapping, dict):
            raise ValueError(f"a run is a JSON object, not {text[:60]!r}")
        return cls.from_mapping(mapping)

    def identity(self) -> dict[str, Any]:
        """What tells runs apart: the hashed fields that differ from their defaults, however they were written."""
        from reweigh.lab.objectives import bound  # imports torch, which this package does not

        hashed = {field.name for field in describe() if field.hashed}
        values = {name: value for name, value in self.to_mapping().items() if name in hashed}
        for name in _EXPRESSIONS & values.keys():
            if isinstance(values[name], str) and values[name] != "auto":
                values[name] = bound(parse(values[name])).key
        return values

    def hash(self) -> str:
        """12 hexadecimal digits over what differs from the defaults, so that new fields rename no old run."""
        content = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    def folder_name(self) -> str:
        """The run's folder: the main choices for people, the hash for certainty; equal runs, equal names."""
        from reweigh.lab.objectives import brief

        taught, noise, imbalance = (
            None if text is None else str(brief(parse(text)))
            for text in (self.weighting or self.loss or self.method, self.noise, self.imbalance)
        )
        parts = [self.data, self.net, taught, noise, self.rate, imbalance]
        words = [re.sub(r"[^A-Za-z0-9.]+", "-", str(part)).strip("-.")[:40] for part in parts if part is not None]
        return f"{'-'.join(filter(None, words))[:120]}-s{self.seed}-{self.hash()}"


_EXPRESSIONS = {"weighting", "loss", "method", "noise", "imbalance", "schedule", "taper"}


class Field(NamedTuple):
    """What a command line or a form needs to know about one field of `Run`."""

    name: str
    type: Any
    choices: tuple[str, ...]
    default: Any  # dataclasses.MISSING where there is none
    check: Check
    hashed: bool
    records: bool  # it says what is written down, and leaves what is learned alone
    help: str


@lru_cache(maxsize=1)
def describe() -> tuple[Field, ...]:
    """All fields of `Run`, in order.

    >>> [field.help for field in describe() if field.name == "lr"]
    ['learning rate at the start']
    """
    hints = get_type_hints(Run, include_extras=True)
    described = []
    for field in fields(Run):
        kind, check, *marks, help_text = get_args(hints[field.name])
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        hashed, records = _WHERE not in marks, _RECORD in marks
        described.append(Field(field.name, kind, choices, field.default, check, hashed, records, help_text))
    return tuple(described)


def _check_together(run: Run) -> None:
    """Refuse fields that contradict each other or would be silently without effect."""
    taught = [name for name in ("weighting", "loss", "method") if getattr(run, name) is not None]
    if len(taught) != 1:
        raise ValueError(f"a run has exactly one of weighting, loss and method, not {' and '.join(taught) or 'none'}")
    kind = None if run.noise is None else parse(run.noise).name
    rateless = kind in (None, "given", "transition", "cifar_n")
    if run.rate is None and not rateless:
        raise ValueError(f"noise is {run.noise} without a rate; give one, from 0 to 1")
    if rateless and run.rate is not None:
        what = "no noise" if run.noise is None else f"noise={run.noise}"
        raise ValueError(f"rate is {run.rate} with {what}; a rate goes with a kind of noise that has one")
    if run.fold is not None and run.validation > 0:
        raise ValueError(f"fold is {run.fold} and validation is {run.validation}: hold out one of the two")
    if run.init_file is not None and run.init_hash is None:
        raise ValueError(
            f"init_file is {run.init_file!r} without init_hash, by which runs from other weights are told apart: give "
            "the first 12 digits of its sha256, or more"
        )
    velocity = run.optimiser in ("momentum", "nesterov")
    adam = run.optimiser.startswith("adam")
    useless = {
        "text_vectors": run.data != "imdb",
        "init_hash": run.init_file is None,
        "normalise": run.weighting is None,
        "taper": run.weighting is None,
        "include_true": kind != "symmetric",
        "noise_count": rateless or kind in ("sl_block_pair", "instance_dependent"),
        "noise_seed": run.noise is None,
        "validation_labels": run.validation == 0,
        "classes_per_batch": run.sampler != "balanced",
        "momentum": not velocity,
        "caffe_momentum": not velocity,
        "betas": not adam,
        "eps": not adam,
    }
    for field in describe():
        if useless.get(field.name, False) and getattr(run, field.name) != field.default:
            raise ValueError(f"{field.name} is {getattr(run, field.name)!r}, which has no effect in this run")
