"""`Run`: all settings that determine a result, flat, typed and frozen, with a hash as its name."""

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
    column_list,
    data_place,
    expression,
    fold_of,
    objective,
    picture_size,
    place,
    rate_schedule,
    taper_value,
)
from reweigh.lab.spec.expression import own_names, parse

Count: TypeAlias = Literal["per_class", "overall", "independent"]
Normalise: TypeAlias = Literal["auto", "batch", "class", "unit", "none"]
TextVectors: TypeAlias = Literal["hashed", "pv-dbow"]
Sampler: TypeAlias = Literal["shuffled", "balanced", "cyclic"]
Augment: TypeAlias = Literal["none", "pad-crop-flip", "resize-crop-flip", "strong"]
Inputs: TypeAlias = Literal["mean-std", "mean", "none"]
Optimiser: TypeAlias = Literal["sgd", "momentum", "nesterov", "adam", "adam-caffe", "adamw"]
Precision: TypeAlias = Literal["fp32", "tf32", "bf16", "bf16-logits"]

_SEED = integer(0)
_HASH = matching("[0-9a-f]{12,64}", "12 to 64 hexadecimal digits")
_FRACTION = number(0, 1, below=True)
_WHERE = object()  # marks a field that decides where or how fast but not what is computed: not part of the hash
_RECORD = object()  # marks a field that decides what is recorded, not what is learned


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run. Exactly one of weighting, loss and method decides the loss.

    Values are checked and converted to canonical form, and a field that has no effect with the others must keep its
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

    # data
    data: Annotated[str, data_place, "data set, by name or path"]
    data_root: Annotated[str | None, optional(place), _WHERE, "folder or file of the data"] = None
    data_hash: Annotated[str | None, optional(_HASH), "first digits of the expected hash of the data"] = None
    label_column: Annotated[str | None, optional(text), "label column of a table, if not 'label'"] = None
    text_column: Annotated[str | None, optional(text), "text column of a table"] = None
    only_columns: Annotated[str | None, optional(column_list), "columns of a table to use, as in age,city"] = None
    drop_columns: Annotated[str | None, optional(column_list), "columns of a table not to use"] = None
    labels: Annotated[str | None, optional(data_place), "table of file names and labels, for a folder of images"] = None
    test_data: Annotated[str | None, optional(data_place), "table with the test rows"] = None
    holdout: Annotated[float, _FRACTION, "fraction held out to test if there is no test part; 0: train on all"] = 0.2
    text_vectors: Annotated[
        TextVectors, one_of(*get_args(TextVectors)), "how texts are converted to vectors; pv-dbow is for imdb"
    ] = "hashed"
    features: Annotated[
        str | None,
        optional(text),
        "features of a pretrained net in place of pictures or texts: efficientnet-lite0, wordllama, hf/NAME, or a file",
    ] = None
    image_size: Annotated[
        int | str | None,
        optional(picture_size),
        "side (or height x width, as in 128x64) that image files are resized to in memory",
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
        str | None, optional(fold_of), "fold held out with its labels as they are, as in 2/5: the second of five"
    ] = None
    threshold_set: Annotated[
        int | None, optional(integer(0)), "which N / (C + 1) examples get a separate class, for their margins"
    ] = None

    # net
    net: Annotated[str, text, "net, by name"]
    dropout: Annotated[float, _FRACTION, "dropout before the classifier"] = 0.0
    bn_momentum: Annotated[
        float | None, optional(number(0, 1, above=True)), "momentum of the batch norms, as in torch, if not the net's"
    ] = None
    init_file: Annotated[str | None, optional(place), _WHERE, "file of weights to start from"] = None
    init_hash: Annotated[str | None, optional(_HASH), "first digits of the sha256 of that file"] = None

    code_hash: Annotated[str | None, optional(_HASH), "first digits of the sha256 of own Python files"] = None
    own_code: Annotated[bool, flag, _WHERE, "execute the Python files that the run names, as in my.py:curve"] = False

    # loss
    weighting: Annotated[str | None, optional(objective), "weighting, as in 'DM(lam=0.5, beta=8)'"] = None
    loss: Annotated[str | None, optional(objective), "loss that is not a weighting, as in 'BootstrapHard(0.8)'"] = None
    method: Annotated[str | None, optional(objective), "method, as in 'CoTeaching(forget_rate=0.4)'"] = None
    normalise: Annotated[Normalise, one_of(*get_args(Normalise)), "derivative normalisation"] = "auto"
    taper: Annotated[float | str, taper_value, "taper: auto, a number, or a schedule"] = "auto"

    # training
    iterations: Annotated[int, integer(1), "iterations"] = 10_000
    patience: Annotated[
        int | None, optional(integer(1)), "evaluations without a better accuracy after which training stops early"
    ] = None
    batch_size: Annotated[int, integer(1), "examples in a batch"] = 128
    sampler: Annotated[Sampler, one_of(*get_args(Sampler)), "order of the examples"] = "shuffled"
    classes_per_batch: Annotated[int, integer(1), "classes in a balanced batch, at most"] = 32
    augment: Annotated[Augment, one_of(*get_args(Augment)), "augmentation of images"] = "none"
    inputs: Annotated[Inputs, one_of(*get_args(Inputs)), "normalisation of the inputs"] = "mean-std"
    optimiser: Annotated[Optimiser, one_of(*get_args(Optimiser)), "optimiser"] = "momentum"
    lr: Annotated[float, number(0, above=True), "learning rate at the start"] = 0.05
    schedule: Annotated[str, rate_schedule, "learning-rate schedule"] = "cosine"
    momentum: Annotated[float, _FRACTION, "momentum"] = 0.9
    caffe_momentum: Annotated[bool, flag, "Caffe's momentum: the learning rate is part of the velocity"] = False
    betas: Annotated[tuple[float, float], pair(_FRACTION), "Adam's two betas"] = (0.9, 0.999)
    eps: Annotated[float, number(0, above=True), "Adam's epsilon; Caffe's delta"] = 1e-8
    weight_decay: Annotated[float, number(0), "weight decay"] = 5e-4
    decay_exempt: Annotated[bool, flag, "no weight decay on biases and norms"] = False
    seed: Annotated[int, _SEED, "seed of everything random"] = 0
    precision: Annotated[
        Precision, one_of(*get_args(Precision)), "precision of the net's body; bf16-logits also rounds the logits"
    ] = "fp32"
    deterministic: Annotated[bool, flag, "use only deterministic kernels"] = False
    device: Annotated[
        str,
        matching("auto|(cpu|cuda|mps|xpu)(:[0-9]+)?", "auto, cpu, cuda, cuda:N, mps or xpu"),
        _WHERE,
        "device",
    ] = "auto"
    workers: Annotated[int, integer(0, 1024), _WHERE, "processes that decode image files"] = 0
    calibrate: Annotated[
        bool, flag, "scale the final model's outputs by a temperature fitted on the validation part"
    ] = False

    # records
    evaluate_every: Annotated[int, integer(1), _RECORD, "iterations between evaluations"] = 1000
    checkpoint_every: Annotated[
        int | None, optional(integer(1)), _WHERE, _RECORD, "iterations between checkpoints, if not at evaluations"
    ] = None
    record_p: Annotated[bool, flag, _RECORD, "record p of every training example at every evaluation"] = False
    record_margins: Annotated[
        bool, flag, _RECORD, "record the margin of every training example, and its nearest class, at every evaluation"
    ] = False

    def __post_init__(self) -> None:
        for field in describe():
            object.__setattr__(self, field.name, field.check(field.name, getattr(self, field.name)))
        _check_together(self)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object]) -> Run:
        """Build the run of a mapping, as from `to_mapping` or a JSON file; unknown keys are refused."""
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
        """Return the fields that differ from their defaults, as JSON values, without the permission `own_code`."""
        values = {field.name: getattr(self, field.name) for field in describe() if field.name != "own_code"}
        changed = {
            field.name: values[field.name]
            for field in describe()
            if field.name in values and values[field.name] != field.default
        }
        return {name: list(value) if isinstance(value, tuple) else value for name, value in changed.items()}

    def to_json(self) -> str:
        """Return `to_mapping` as JSON text."""
        return json.dumps(self.to_mapping(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Run:
        """Build the run of a JSON text."""
        mapping = json.loads(text)
        if not isinstance(mapping, dict):
            raise ValueError(f"a run is a JSON object, not {text[:60]!r}")
        return cls.from_mapping(mapping)

    def identity(self) -> dict[str, Any]:
        """Return the hashed fields that differ from their defaults, expressions in canonical form."""
        from reweigh.lab.objectives import bound  # imports torch, which this package does not

        hashed = {field.name for field in describe() if field.hashed}
        values = {name: value for name, value in self.to_mapping().items() if name in hashed}
        for name in _EXPRESSIONS & values.keys():
            if isinstance(values[name], str) and values[name] != "auto":
                values[name] = bound(parse(values[name])).key
        return values

    def hash(self) -> str:
        """Return 12 hexadecimal digits over `identity`, so that a new field with a default renames no run."""
        content = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    def folder_name(self) -> str:
        """Return the name of the run's folder: the main settings, to be read, and the hash, which is unique."""
        from reweigh.lab.objectives import brief

        objective, noise, imbalance = (
            None if text is None else str(brief(parse(text)))
            for text in (self.weighting or self.loss or self.method, self.noise, self.imbalance)
        )
        parts = [self.data, self.net, objective, noise, self.rate, imbalance]
        words = [re.sub(r"[^A-Za-z0-9.]+", "-", str(part)).strip("-.")[:40] for part in parts if part is not None]
        return f"{'-'.join(filter(None, words))[:120]}-s{self.seed}-{self.hash()}"


DATA_FIELDS = (
    *("data_root", "data_hash", "label_column", "text_column", "only_columns", "drop_columns", "labels", "test_data"),
    *("holdout", "text_vectors", "features", "image_size"),
)
"""The fields, besides `data`, that decide how the data are read."""

_EXPRESSIONS = {"weighting", "loss", "method", "noise", "imbalance", "schedule", "taper"}


class Field(NamedTuple):
    """One field of `Run`, as a command line or a form needs it."""

    name: str
    type: Any
    choices: tuple[str, ...]
    default: Any  # dataclasses.MISSING if the field is required
    check: Check
    hashed: bool
    records: bool  # decides what is recorded, not what is learned
    help: str


@lru_cache(maxsize=1)
def describe() -> tuple[Field, ...]:
    """Return all fields of `Run`, in order.

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
    """Raise ValueError for fields that contradict each other or have no effect."""
    given = [name for name in ("weighting", "loss", "method") if getattr(run, name) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise ValueError(f"a run needs exactly one of weighting, loss and method, not {found}")
    kind = None if run.noise is None else parse(run.noise).name
    rateless = kind in (None, "given", "transition", "cifar_n")
    if run.rate is None and not rateless:
        raise ValueError(f"noise is {run.noise} without a rate; give one, from 0 to 1")
    if rateless and run.rate is not None:
        what = "no noise" if run.noise is None else f"noise={run.noise}"
        raise ValueError(f"rate is {run.rate} with {what}, which has no rate")
    if run.fold is not None and run.validation > 0:
        raise ValueError(f"fold is {run.fold} and validation is {run.validation}: give only one of the two")
    if run.init_file is not None and run.init_hash is None:
        raise ValueError(
            f"init_file is {run.init_file!r} without init_hash, which identifies the weights: give "
            "the first 12 digits of its sha256, or more"
        )
    own = [name for text in (run.net, run.weighting, run.loss, run.method) if text for name in own_names(text)]
    if own and run.code_hash is None:
        raise ValueError(f"{own[0]} without code_hash, which identifies the code: give the sha256 of the file")
    velocity = run.optimiser in ("momentum", "nesterov")
    adam = run.optimiser.startswith("adam")
    without_effect = {
        "text_vectors": run.data != "imdb",
        "init_hash": run.init_file is None,
        "code_hash": not own,
        "normalise": run.weighting is None,
        "taper": run.weighting is None,
        "include_true": kind != "symmetric",
        "noise_count": rateless or kind in ("sl_block_pair", "instance_dependent"),
        "noise_seed": run.noise is None,
        "validation_labels": run.validation == 0,
        "calibrate": run.validation == 0 and run.fold is None,
        "classes_per_batch": run.sampler != "balanced",
        "momentum": not velocity,
        "caffe_momentum": not velocity,
        "betas": not adam,
        "eps": not adam,
    }
    for field in describe():
        if without_effect.get(field.name, False) and getattr(run, field.name) != field.default:
            raise ValueError(f"{field.name} is {getattr(run, field.name)!r}, which has no effect in this run")
