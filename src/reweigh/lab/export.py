"""Export a model as ONNX or TorchScript, with its preprocessing inside.

export(folder / "model", "model.onnx", rows)       # raw inputs -> probabilities of the classes
"""

from __future__ import annotations

import io
import json
import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reweigh.errors import DataError, require
from reweigh.lab.batches.loader import Crops
from reweigh.lab.batches.statistics import Normalisation
from reweigh.lab.data.dataset import Part
from reweigh.lab.data.source.images import Files
from reweigh.lab.data.table import are_numbers
from reweigh.lab.predict import probabilities_of, reads_text, run_of
from reweigh.lab.record.files import replace_file
from reweigh.lab.run.parts import CROP, RESIZE
from reweigh.lab.train.model import Card, load_model

ROWS = 64  # on which the exported model is checked
TOLERANCE = 1e-4  # of a probability

Format = Literal["onnx", "torchscript"]


class Exported(NamedTuple):
    """A written file: what it reads, the number of rows it was checked on, and the largest difference of p."""

    path: Path
    reads: str
    rows: int
    difference: float


class _Predictor(nn.Module):
    """Raw inputs -> probabilities: standardise, apply the net, divide by the temperature, softmax."""

    scale: Tensor
    shift: Tensor

    def __init__(self, net: nn.Module, card: Card, temperature: float) -> None:
        super().__init__()
        self.net, self.temperature, self.images = net, temperature, card.kind in ("images", "files")
        plain = Normalisation((0.0,) * card.shape[0], (1.0,) * card.shape[0])
        normalisation = card.normalisation or plain
        if self.images:
            scale, shift = normalisation.pixels(torch.device("cpu"))
        else:  # in float64, so that a large mean costs no precision
            mean, std = (torch.tensor(x, dtype=torch.float64) for x in (normalisation.mean, normalisation.std))
            if card.columns is not None:
                own_std = torch.tensor([column.std for column in card.columns], dtype=torch.float64)
                mean = mean * own_std + torch.tensor([column.mean for column in card.columns], dtype=torch.float64)
                std = std * own_std
            scale, shift = 1 / std, -mean / std
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (N, C) probabilities of images (N, H, W, 3) uint8 or features (N, F) float64."""
        if self.images:
            x = inputs.permute(0, 3, 1, 2).float() * self.scale[:, None, None] + self.shift[:, None, None]
        else:
            x = (inputs * self.scale + self.shift).float()
        logits: Tensor = self.net(x)
        return (logits / self.temperature).softmax(1)


def export(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    rows: Part,
    form: Format = "onnx",
    which: Literal["final", "best"] = "final",
) -> Exported:
    """Write a model that reads raw inputs and returns probabilities, and check it on rows of real data.

    The file reads uint8 pixels (N, H, W, 3), or float64 features (N, F) in the order of the training, and contains the
    scaling of columns, the normalisation, the net and the temperature. The names of the classes are in the metadata
    `class_names` of an ONNX file, and in the extra file of that name of a TorchScript archive, both as JSON.

    Args:
        model: folder of the model, or of its run.
        output: the file to write.
        rows: examples as loaded for training, of which the first 64 are compared.
        form: "onnx" (extra `export`) or "torchscript".
        which: the final model, or the best one if it was saved.

    Raises:
        DataError: the model reads texts, or the exported model differs from it.
    """
    net, card = load_model(model, which)
    if reads_text(run_of(card)):
        raise DataError(f"{model}: reads texts, which are hashed before the net; neither format can do that")
    if card.columns is not None and not are_numbers(card.columns):
        kinds = ", ".join(f"{column.name} ({column.kind})" for column in card.columns if not are_numbers([column]))
        raise DataError(f"{model}: reads columns that neither format can convert: {kinds}")
    chosen = rows.take(range(min(ROWS, len(rows))))
    raw, reads = _raw(chosen, card)
    predictor = _Predictor(net, card, card.temperature if which == "final" else 1.0).eval().requires_grad_(False)
    content, found = _FORMATS[form](predictor, raw, json.dumps(card.class_names, ensure_ascii=False))
    expected = probabilities_of(net, card, chosen, torch.device("cpu"), which)
    difference = float(np.abs(found - expected).max())
    if not difference <= TOLERANCE:
        raise DataError(f"{output}: not written: its probabilities differ from those of the model by {difference:.2g}")
    replace_file(Path(output), lambda file: file.write(content))
    return Exported(Path(output), reads, len(chosen), difference)


def _raw(rows: Part, card: Card) -> tuple[Tensor, str]:
    """Return examples as the exported model reads them, and what that is."""
    if isinstance(rows.inputs, Files):
        room = RESIZE[0] - CROP[0], RESIZE[1] - CROP[1]
        index = torch.arange(len(rows))
        plan = torch.stack((index, *(torch.full_like(index, side // 2) for side in room), torch.zeros_like(index)))
        _, images = Crops(cast(Any, rows.inputs), RESIZE, CROP)[plan]
        if isinstance(images, str):
            raise DataError(images)
        how = f"resized to {RESIZE[0]} x {RESIZE[1]}, of which the centre"
        return images, f"uint8 pixels (N, {CROP[0]}, {CROP[1]}, 3), {how}"
    inputs = np.asarray(rows.inputs)
    if card.kind == "images":
        return torch.from_numpy(inputs.copy()), f"uint8 pixels (N, {', '.join(map(str, inputs.shape[1:]))})"
    features = inputs.astype(np.float64)
    if card.columns is None:
        return torch.from_numpy(features), f"float64 features (N, {features.shape[1]})"
    mean, std = (np.array([getattr(column, name) for column in card.columns]) for name in ("mean", "std"))
    names = ", ".join(column.name for column in card.columns[:8]) + (", ..." if len(card.columns) > 8 else "")
    return torch.from_numpy(features * std + mean), f"float64 columns (N, {len(card.columns)}): {names}"


def _onnx(predictor: nn.Module, raw: Tensor, names: str) -> tuple[bytes, NDArray[np.float32]]:
    """Return the ONNX file, and its probabilities of the rows according to ONNX Runtime."""
    runtime = require("onnxruntime", extra="export")
    require("onnxscript", extra="export")
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)  # else it warns that torchvision is not installed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own exporter
        program: Any = torch.onnx.export(
            predictor,
            (raw,),
            dynamo=True,
            input_names=["inputs"],
            output_names=["probabilities"],
            dynamic_shapes={"inputs": {0: torch.export.Dim("examples")}},
            verbose=False,
        )
    logger.setLevel(level)
    model = program.model_proto
    model.metadata_props.add(key="class_names", value=names)
    content = model.SerializeToString()
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return content, session.run(None, {"inputs": raw.numpy()})[0]


def _torchscript(predictor: nn.Module, raw: Tensor, names: str) -> tuple[bytes, NDArray[np.float32]]:
    """Return the TorchScript archive, and its probabilities of the rows."""
    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of torch.jit, which is deprecated; the rows show whether the trace is right
        traced = torch.jit.trace(predictor, (raw,))  # type: ignore[no-untyped-call]
        torch.jit.save(traced, file, _extra_files={"class_names": names.encode()})
        loaded = torch.jit.load(io.BytesIO(file.getvalue()))  # type: ignore[no-untyped-call]
        return file.getvalue(), loaded(raw).numpy()


_FORMATS: dict[Format, Callable[[nn.Module, Tensor, str], tuple[bytes, NDArray[np.float32]]]] = {
    "onnx": _onnx,
    "torchscript": _torchscript,
}
