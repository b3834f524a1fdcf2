"""Vectors of texts: PV-DBOW (Le & Mikolov 2014) by gensim's Doc2Vec (extra `text`), or hashed words.

The settings are those of the IMDB experiments (word2vec.c `-cbow 0 -size 100 -window 10 -negative 5 -hs 1 -sample
1e-3 -iter 20 -min-count 1 -sentence-vectors 1`): skip-gram for words and DBOW for documents, negative sampling and
hierarchical softmax, over train, test and unlabelled texts (transductive). Unlike that program, gensim keeps document
tags out of the vocabulary, and truncates texts at 10,000 words instead of 1,000.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError, require
from reweigh.lab.data import imdb
from reweigh.lab.data.dataset import Dataset, Part
from reweigh.noise.files import read_sealed, write_sealed
from reweigh.streams import mix, numpy_generator

Vectors = NDArray[np.float32]
Progress = Callable[[int, int], None]
"""Called with (epochs done, epochs)."""


@dataclass(frozen=True)
class Settings:
    """The settings of Doc2Vec, with gensim's names; the defaults are the published ones."""

    vector_size: int = 100
    window: int = 10
    negative: int = 5
    hs: int = 1
    sample: float = 1e-3
    min_count: int = 1
    epochs: int = 20
    alpha: float = 0.025
    min_alpha: float = 2.5e-6
    seed: int = 0


def load(
    root: str | os.PathLike[str],
    cache: str | os.PathLike[str] | None = None,
    *,
    settings: Settings | None = None,
    deterministic: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Load IMDB's labelled reviews as vectors, learnt together with the unlabelled ones.

    By default they are cached in imdb-vectors/ next to aclImdb/; the other arguments are those of `embed`. The 100,000
    reviews have 27 million words and take about four core-hours; an interruption costs at most one epoch.
    """
    folder = imdb.find_root(root)
    return embed(
        imdb.load(folder),
        imdb.load_unlabelled(folder),
        folder.parent / "imdb-vectors" if cache is None else cache,
        settings=settings,
        deterministic=deterministic,
        workers=workers,
        progress=progress,
    )


def embed(
    dataset: Dataset,
    unlabelled: Sequence[str] = (),
    cache: str | os.PathLike[str] | None = None,
    *,
    settings: Settings | None = None,
    deterministic: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Return a text data set as features, one float32 vector per text.

    Args:
        dataset: texts with labels.
        unlabelled: further texts to learn from.
        cache: a folder for vectors; those of the same texts and settings are reused, and unfinished ones resumed.
        settings: the settings of Doc2Vec.
        deterministic: see `document_vectors`.
        workers: see `document_vectors`.
        progress: called after every epoch with (epochs done, epochs).
    """
    train, test = dataset.train.inputs, dataset.test.inputs
    if not isinstance(train, tuple) or not isinstance(test, tuple):
        raise TypeError(f"{dataset.name} holds {dataset.kind}; expected text")
    texts = (*train, *test, *unlabelled)
    settings = settings or Settings()
    file = None if cache is None else Path(cache) / f"vectors-{_key(texts, settings, deterministic)}.npz"
    vectors = None if file is None else _cached(file, (len(train) + len(test), settings.vector_size))
    if vectors is None:
        if file is not None:
            _check_writable(file.parent)  # before hours of training
        partial = None if file is None else file.with_name(f"half-{file.name}")
        everything = document_vectors(
            texts, settings, deterministic=deterministic, workers=workers, progress=progress, keep=partial
        )
        vectors = everything[: len(train) + len(test)]
        if file is not None and partial is not None:
            kept = _cached(file, vectors.shape)  # another process may have written them; resuming needs the same ones
            if kept is None:
                write_sealed(file, {"settings": asdict(settings), "deterministic": deterministic}, vectors=vectors)
            vectors = vectors if kept is None else kept
            partial.unlink(missing_ok=True)
    return Dataset(
        name=f"{dataset.name}-vectors",
        train=Part(vectors[: len(train)], dataset.train.labels),
        test=Part(vectors[len(train) :], dataset.test.labels),
        class_names=dataset.class_names,
        groups=dataset.groups,
        holdout=dataset.holdout,
    )


def document_vectors(
    texts: Sequence[str],
    settings: Settings | None = None,
    *,
    deterministic: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
    keep: Path | None = None,
) -> Vectors:
    """Return one vector per text, learnt on all of them, in an order shuffled by the seed.

    Args:
        texts: split into words by `imdb.normalise` and spaces.
        settings: the settings of Doc2Vec.
        deterministic: use one worker, and give the same bytes on the same machine for any PYTHONHASHSEED; otherwise
            threads race, and vectors differ from run to run.
        workers: the number of threads; all cores by default.
        progress: called after every epoch with (epochs done, epochs).
        keep: a checkpoint file, written after every epoch and resumed from.
    """
    if deterministic and workers not in (None, 1):
        raise ValueError(f"workers is {workers}; the deterministic mode uses one")
    if workers is not None and workers < 1:
        raise ValueError(f"workers is {workers}; expected 1 or more")
    if not texts:
        raise ValueError("texts is empty")
    settings = settings or Settings()
    doc2vec = require("gensim.models.doc2vec", extra="text")
    arguments = asdict(settings) | {"seed": mix(settings.seed, "vectors") & 0xFFFFFFFF}
    model = doc2vec.Doc2Vec(
        dm=0,
        dbow_words=1,
        workers=1 if deterministic else workers or os.cpu_count() or 1,
        hashfxn=_stable_hash,
        **arguments,
    )
    corpus = _Corpus(texts, settings.seed, doc2vec.TaggedDocument)
    model.build_vocab(corpus)
    rates = np.linspace(settings.alpha, settings.min_alpha, settings.epochs + 1).tolist()
    begun = 0 if keep is None else _restore(model, keep)
    for epoch in range(begun, settings.epochs):
        model.train(
            corpus,
            total_examples=model.corpus_count,
            epochs=1,
            start_alpha=rates[epoch],
            end_alpha=rates[epoch + 1],
        )
        if keep is not None and epoch + 1 < settings.epochs:
            _save(model, keep, epoch + 1)
        if progress is not None:
            progress(epoch + 1, settings.epochs)
    vectors: Vectors = np.array(model.dv.vectors, dtype=np.float32)
    return vectors


def _weights(model: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays that training changes, apart from the random state."""
    held = {"words": model.wv.vectors, "documents": model.dv.vectors}
    return held | {name: getattr(model, name) for name in ("syn1", "syn1neg") if hasattr(model, name)}


def _save(model: Any, file: Path, epochs: int) -> None:
    _, keys, place, has_gauss, gauss = model.random.get_state()
    meta = {"epochs": epochs, "random": [int(place), int(has_gauss), float(gauss)]}
    write_sealed(file, meta, random=keys, **_weights(model))


def _restore(model: Any, file: Path) -> int:
    """Restore what `_save` wrote, and return its epochs; 0 if there is no file that fits."""
    try:
        meta, arrays = read_sealed(file)
    except DataError:  # not there, or broken
        return 0
    weights = _weights(model)
    if any(name not in arrays or arrays[name].shape != array.shape for name, array in weights.items()):
        return 0
    for name, array in weights.items():
        array[...] = arrays[name]
    model.random.set_state(("MT19937", arrays["random"], *meta["random"]))
    return int(meta["epochs"])


@dataclass(frozen=True)
class _Corpus:
    """Shuffled texts for gensim, split again in every epoch to save memory."""

    texts: Sequence[str]
    seed: int
    tagged: Callable[[list[str], list[int]], Any]

    def __iter__(self) -> Iterator[Any]:
        for i in numpy_generator(self.seed, "vectors/order").permutation(len(self.texts)).tolist():
            yield self.tagged(imdb.normalise(self.texts[i]).split(), [i])


def _stable_hash(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


def _key(texts: Sequence[str], settings: Settings, deterministic: bool) -> str:
    digest = hashlib.sha256(f"{settings} {deterministic}\n".encode())
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        digest.update(f"{len(raw)}:".encode() + raw)
    return digest.hexdigest()[:32]


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DataError(f"{folder}: cannot write vectors: {error.strerror or error}") from error


def _cached(file: Path, shape: tuple[int, int]) -> Vectors | None:
    """Return cached vectors; None if the file is missing or damaged."""
    if not file.is_file():
        return None
    try:
        vectors = read_sealed(file)[1].get("vectors")
    except DataError:
        return None
    if vectors is None or vectors.shape != shape or vectors.dtype != np.float32:
        return None
    return vectors


WIDTH = 2048
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def hash_texts(texts: Sequence[str], width: int = WIDTH) -> NDArray[np.float32]:
    """Return (N, width) float32: 1 + log(count) of every hashed word and pair of words, each row of length 1.

    Needs no vocabulary, so that a saved model can read new texts. The hash is CRC-32, the same on every machine; a text
    without words is a row of zeros.

    >>> a, b = hash_texts(["A good film.", "a GOOD film"])
    >>> bool((a == b).all()), round(float((a**2).sum()), 6)
    (True, 1.0)
    """
    rows = np.zeros((len(texts), width), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        words = [word.lower() for word in _WORD.findall(text)]
        terms = [*words, *(f"{a} {b}" for a, b in pairwise(words))]
        cells = np.array([zlib.crc32(term.encode()) % width for term in terms], dtype=np.int64)
        counts = np.bincount(cells, minlength=width)
        present = counts > 0
        row[present] = 1 + np.log(counts[present])
        row /= np.linalg.norm(row) or 1.0
    return rows
