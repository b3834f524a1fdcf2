"""A trained model as a folder: model.safetensors, best.safetensors where an earlier net was better, and model.json.

net, card = load_model("runs/.../model")
logits = net(inputs)                               # normalised as card.normalisation says
names = [card.class_names[i] for i in logits.argmax(1)]
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from torch import Tensor, nn

from reweigh.errors import DataError
from reweigh.lab.batches.statistics import Normalisation
from reweigh.lab.data.dataset import Column, Kind
from reweigh.lab.methods.class_imbalance import CosineLinear
from reweigh.lab.nets.net import Net
from reweigh.lab.nets.registry import build
from reweigh.lab.nets.weights import load_weights
from reweigh.lab.own import load_code, own_net
from reweigh.lab.record.files import RecordError, make_folder, read_json, replace_file, sha256_of, write_json
from reweigh.lab.record.rows import current_names
from reweigh.lab.spec import Run

FORMAT = 1
_FILES = {"final": "model.safetensors", "best": "best.safetensors"}


@dataclass(frozen=True)
class Card:
    """The information needed to use a model.

    Args:
        net: its name in the registry of nets.
        class_names: class id -> name.
        kind: of the data set's examples: images, files, features or text.
        shape: of one input of the net: (C, H, W) or (F,).
        normalisation: of the inputs, or None.
        columns: of a model of a table, the columns it reads and their scaling.
        dropout: before the classifier; no effect in evaluation.
        large_stem: whether the net has the stem for large images, where it has a choice.
        run: the run that trained it, or None.
        code: of an own net, path -> text of its Python files, else None.
        temperature: probabilities are softmax(logits / temperature).
        metrics: its results, as JSON values.
    """

    net: str
    class_names: tuple[str, ...]
    kind: Kind
    shape: tuple[int, ...]
    normalisation: Normalisation | None = None
    columns: tuple[Column, ...] | None = None
    dropout: float = 0.0
    large_stem: bool = False
    run: Run | None = None
    code: Mapping[str, str] | None = None
    temperature: float = 1.0
    metrics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)


def save_model(
    folder: str | os.PathLike[str], net: nn.Module, card: Card, *, best: Mapping[str, Tensor] | None = None
) -> None:
    """Save a model; model.json is written last and holds the digests of the weights.

    Args:
        folder: the folder of the model.
        net: the final model.
        card: its description.
        best: the state dict of the best model, or None.
    """
    folder = Path(folder)
    if folder.is_symlink():
        raise RecordError(errno.ELOOP, f"{folder} is a symbolic link; expected a folder")
    make_folder(folder)
    digests = {"final": _write(folder / _FILES["final"], net.state_dict())}
    if best is not None:
        digests["best"] = _write(folder / _FILES["best"], best)
    else:
        (folder / _FILES["best"]).unlink(missing_ok=True)
    content = {
        "format": FORMAT,
        "net": card.net,
        "num_classes": card.num_classes,
        "class_names": card.class_names,
        "kind": card.kind,
        "shape": card.shape,
        "normalisation": None if card.normalisation is None else asdict(card.normalisation),
        "columns": None if card.columns is None else [column._asdict() for column in card.columns],
        "dropout": card.dropout,
        "large_stem": card.large_stem,
        "cosine_scale": head.scale if isinstance(head := getattr(net, "classifier", None), CosineLinear) else None,
        "run": None if card.run is None else card.run.to_mapping(),
        "code": card.code,
        "temperature": card.temperature,
        "metrics": card.metrics,
        "sha256": digests,
    }
    write_json(folder / "model.json", content)


def load_model(
    folder: str | os.PathLike[str],
    which: Literal["final", "best"] = "final",
    *,
    device: str | torch.device = "cpu",
    own_code: bool = False,
) -> tuple[Net, Card]:
    """Load a net, in evaluation mode on `device`, and its card.

    Args:
        folder: of the model, or of the run that trained it.
        which: the final model, or the best if it was kept.
        device: of the net.
        own_code: execute the recorded code of an own net; read it first.

    Raises:
        DataError: a file is missing, damaged or not of this format; the folder has no such model; or its weights are
            not finite, because training diverged.
    """
    folder = Path(folder)
    if (folder / "run.json").is_file():
        folder /= "model"
        if folder.is_symlink():
            raise DataError(f"{folder}: a symbolic link; expected a folder")
    path = folder / "model.json"
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise DataError(f"{path}: format is {content.get('format')!r}; this version reads {FORMAT}")
    weights = folder / _FILES[which]
    try:
        card = _card(content)
        digests = dict(content["sha256"])
        if which not in digests:
            raise ValueError(f"there is no {which} model in this folder, only {', '.join(map(str, digests)) or 'none'}")
        if sha256_of(weights) != digests[which]:
            raise DataError(f"{weights}: damaged; its content does not match the digest in model.json")
        net = _empty_net(card, own_code, weights.stat().st_size)
        if content["cosine_scale"] is not None:  # LDAM replaces the head
            net.fc = CosineLinear(net.classifier.in_features, card.num_classes, float(content["cosine_scale"]))
    except KeyError as error:
        raise DataError(f"{path}: {error} is missing") from error
    except DataError:
        raise
    except (TypeError, ValueError, AttributeError, MemoryError, OverflowError) as error:
        raise DataError(f"{path}: {error}") from error
    load_weights(net, weights)
    if not all(bool(tensor.isfinite().all()) for tensor in net.state_dict().values()):
        raise DataError(f"{weights}: the weights are not finite: training diverged; train again with a smaller lr")
    return net.to(device).eval(), card


def _empty_net(card: Card, own_code: bool, most_bytes: int) -> Net:
    """Return the net of a card, with initial values that are overwritten later."""
    if ":" in card.net:
        if card.run is None or card.code is None:
            raise ValueError(f"net {card.net} without its code")
        load_code(replace(card.run, own_code=own_code), card.code)
        return own_net(card.net, card.num_classes, card.shape, torch.Generator(), card.dropout)
    features = card.shape[0] if len(card.shape) == 1 else None
    return build(
        card.net,
        card.num_classes,
        features,
        generator=torch.Generator(),
        dropout=card.dropout,
        most_bytes=most_bytes,
        large=card.large_stem,
    )


def _card(content: Mapping[str, Any]) -> Card:
    normalisation, columns = content["normalisation"], content["columns"]
    card = Card(
        net=str(content["net"]),
        class_names=tuple(str(name) for name in content["class_names"]),
        kind=content["kind"],
        shape=tuple(int(size) for size in content["shape"]),
        normalisation=None
        if normalisation is None
        else Normalisation(tuple(normalisation["mean"]), tuple(normalisation["std"])),
        columns=None
        if columns is None
        else tuple(Column(**(c | {"categories": tuple(c.get("categories", ()))})) for c in columns),
        dropout=float(content["dropout"]),
        large_stem=bool(content.get("large_stem", False)),  # earlier versions had no choice
        run=None if content["run"] is None else Run.from_mapping(content["run"]),
        code=content.get("code"),
        temperature=float(content.get("temperature", 1.0)),
        metrics=current_names(content["metrics"]),
    )
    if content["num_classes"] != card.num_classes:
        raise ValueError(f"num_classes is {content['num_classes']}, but there are {card.num_classes} class_names")
    return card


def _write(path: Path, state: Mapping[str, Tensor]) -> str:
    """Write the tensors and return the file's sha256."""
    # clones, because safetensors refuses tensors that share memory
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}
    content = safetensors.torch.save(tensors)
    replace_file(path, lambda file: file.write(content))
    return hashlib.sha256(content).hexdigest()
