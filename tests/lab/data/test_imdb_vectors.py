"""Document vectors: same bytes where promised, kept where told, and worth something."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reweigh.errors import DataError
from reweigh.lab.data import imdb, vectors
from reweigh.lab.data.dataset import Dataset, Part
from reweigh.noise.files import read_sealed, write_sealed

pytest.importorskip("gensim", reason="document vectors need gensim (extra text)")

GOOD, BAD = ["lovely", "great", "moving", "brilliant", "superb"], ["dull", "awful", "boring", "poor", "weak"]
SMALL = vectors.Settings(vector_size=12, epochs=3)


def texts(count: int, seed: int = 0) -> tuple[tuple[str, ...], np.ndarray]:
    """Sentences of words from one of two lists, by turns."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    return tuple(" ".join(rng.choice(GOOD if label else BAD, 12)) for label in labels), labels.astype(np.int64)


@pytest.fixture
def data() -> Dataset:
    train, y_train = texts(30)
    test, y_test = texts(10, seed=1)
    return Dataset("words", Part(train, y_train), Part(test, y_test), ("neg", "pos"))


def test_the_settings_are_the_published_ones() -> None:
    assert vectors.Settings() == vectors.Settings(
        vector_size=100, window=10, negative=5, hs=1, sample=1e-3, min_count=1, epochs=20, alpha=0.025, min_alpha=2.5e-6
    )


def test_a_text_set_becomes_features(data: Dataset) -> None:
    features = vectors.embed(data, ("further words",), settings=SMALL)
    assert features.name == "words-vectors"
    assert features.kind == "features"
    assert features.train.inputs.shape == (30, 12)
    assert features.test.inputs.shape == (10, 12)
    assert features.train.inputs.dtype == np.float32
    assert (features.train.labels == data.train.labels).all()
    assert features.class_names == data.class_names


def test_the_deterministic_mode_repeats_its_bytes(data: Dataset) -> None:
    first, again = (vectors.embed(data, settings=SMALL, deterministic=True).hash for _ in range(2))
    other = vectors.embed(data, settings=vectors.Settings(vector_size=12, epochs=3, seed=1), deterministic=True).hash
    assert first == again != other


def test_the_deterministic_mode_does_not_need_a_hash_seed() -> None:
    code = (
        "import hashlib; from reweigh.lab.data import vectors;"
        "texts = ['one two three four', 'two three five', 'six one'] * 4;"
        "v = vectors.document_vectors(texts, vectors.Settings(vector_size=8, epochs=2), deterministic=True);"
        "print(hashlib.sha256(v.tobytes()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_vectors_tell_the_two_kinds_of_text_apart(data: Dataset) -> None:
    settings = vectors.Settings(vector_size=12, epochs=60)
    features = vectors.embed(data, settings=settings, deterministic=True)
    x, y = features.train.inputs, features.train.labels
    towards = x[y == 1].mean(axis=0) - x[y == 0].mean(axis=0)
    middle = x.mean(axis=0)
    guess = (features.test.inputs - middle) @ towards > 0
    assert (guess == features.test.labels).mean() == 1.0


def test_rows_belong_to_their_texts_despite_the_shuffle() -> None:
    """Texts of the same words end nearer to each other than to the rest."""
    words, labels = texts(40)
    found = vectors.document_vectors(words, vectors.Settings(vector_size=12, epochs=60), deterministic=True)
    unit = found / np.linalg.norm(found, axis=1, keepdims=True)
    alike = unit @ unit.T
    same = labels[:, None] == labels
    assert alike[same].mean() > alike[~same].mean() + 0.2


def test_progress_is_told_after_every_epoch(data: Dataset) -> None:
    told: list[tuple[int, int]] = []
    vectors.embed(data, settings=SMALL, progress=lambda done, of: told.append((done, of)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_of_several_processes_that_learn_at_once_all_take_what_the_first_kept(data: Dataset, tmp_path: Path) -> None:
    """Threads race, so that each has learnt other vectors; a run would not be resumed on those of another."""
    first = list[Dataset]()

    def meanwhile(done: int, of: int) -> None:
        if done == of and not first:
            first.append(vectors.embed(data, ("other words",) * 5, settings=SMALL))
            key = vectors._key((*data.train.inputs, *data.test.inputs), SMALL, False)
            both = np.concatenate([first[0].train.inputs, first[0].test.inputs])
            write_sealed(tmp_path / f"vectors-{key}.npz", {}, vectors=both)

    second = vectors.embed(data, cache=tmp_path, settings=SMALL, progress=meanwhile)
    assert second.hash == first[0].hash
    assert vectors.embed(data, cache=tmp_path, settings=SMALL).hash == first[0].hash


def test_the_fast_mode_has_workers(data: Dataset) -> None:
    assert vectors.embed(data, settings=SMALL, workers=2).train.inputs.shape == (30, 12)
    for workers, told in ((0, "expected 1 or more"), (-1, "expected 1 or more")):
        with pytest.raises(ValueError, match=told):
            vectors.embed(data, settings=SMALL, workers=workers)
    with pytest.raises(ValueError, match="the deterministic mode uses one"):
        vectors.embed(data, settings=SMALL, workers=2, deterministic=True)


def test_what_was_learnt_is_kept(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "deep" / "cache"
    first = vectors.embed(data, cache=cache, settings=SMALL)
    assert len(list(cache.iterdir())) == 1

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("learnt again")

    with monkeypatch.context() as patch:
        patch.setattr(vectors, "document_vectors", refuse)
        assert vectors.embed(data, cache=cache, settings=SMALL).hash == first.hash
        for change in (
            {"settings": vectors.Settings(vector_size=12, epochs=4)},
            {"deterministic": True},
            {"unlabelled": ("one more",)},
        ):
            with pytest.raises(AssertionError, match="learnt again"):
                vectors.embed(data, cache=cache, **{"settings": SMALL, **change})


def test_learning_goes_on_after_a_break(data: Dataset, tmp_path: Path) -> None:
    class BrokenOffError(Exception): ...

    def stop(done: int, epochs: int) -> None:
        if done == 2:
            raise BrokenOffError

    whole = vectors.embed(data, settings=SMALL, deterministic=True)
    with pytest.raises(BrokenOffError):
        vectors.embed(data, cache=tmp_path, settings=SMALL, deterministic=True, progress=stop)
    (half,) = tmp_path.iterdir()
    told: list[int] = []
    again = vectors.embed(
        data, cache=tmp_path, settings=SMALL, deterministic=True, progress=lambda done, epochs: told.append(done)
    )
    assert told == [3]
    assert again.hash == whole.hash
    assert not half.exists()


@pytest.mark.parametrize("damage", ["byte", "cut", "shape", "other array"])
def test_a_broken_cache_is_learnt_again(data: Dataset, tmp_path: Path, damage: str) -> None:
    first = vectors.embed(data, cache=tmp_path, settings=SMALL, deterministic=True)
    (file,) = tmp_path.iterdir()
    raw = bytearray(file.read_bytes())
    if damage == "byte":
        raw[200] ^= 1
        file.write_bytes(raw)
    elif damage == "cut":
        file.write_bytes(raw[:100])
    elif damage == "shape":
        write_sealed(file, {}, vectors=np.zeros((3, 12), np.float32))
    else:
        write_sealed(file, {}, words=np.zeros((40, 12), np.float32))
    assert vectors.embed(data, cache=tmp_path, settings=SMALL, deterministic=True).hash == first.hash
    assert read_sealed(file)[1]["vectors"].shape == (40, 12)


def test_an_unwritable_cache_is_reported_before_training(data: Dataset, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write vectors"):
        vectors.embed(data, cache=tmp_path / "file", settings=SMALL, progress=lambda *_: pytest.fail("learnt"))


def test_only_texts_have_vectors() -> None:
    part = Part(np.zeros((2, 3), np.float32), np.array([0, 1]))
    with pytest.raises(TypeError, match="expected text"):
        vectors.embed(Dataset("numbers", part, part, ("a", "b")))
    with pytest.raises(ValueError, match="texts is empty"):
        vectors.document_vectors(())


def write_reviews(root: Path) -> None:
    for folder, rating in (("train/pos", 9), ("train/neg", 2), ("train/unsup", 0), ("test/pos", 8), ("test/neg", 1)):
        (root / folder).mkdir(parents=True)
        for i in range(3):
            (root / folder / f"{i}_{rating}.txt").write_text(f"Film {i}, of {folder}.")


def test_imdb_is_learnt_with_its_unlabelled_reviews_and_kept_beside_it(tmp_path: Path) -> None:
    write_reviews(tmp_path / "aclImdb")
    features = vectors.load(tmp_path, settings=SMALL, deterministic=True)
    assert features.name == "imdb-vectors"
    assert (len(features.train), len(features.test)) == (6, 6)
    assert len(list((tmp_path / "imdb-vectors").iterdir())) == 1
    assert vectors.load(tmp_path, settings=SMALL, deterministic=True).hash == features.hash


def test_real_reviews_repeat_their_bytes(real_data: Path) -> None:
    if not (real_data / "aclImdb").is_dir():
        pytest.skip("no aclImdb below REWEIGH_DATA")
    names = sorted((real_data / "aclImdb" / "train" / "neg").iterdir())[:40]
    reviews = tuple(path.read_text("utf-8") for path in names)
    assert len({word for text in reviews for word in imdb.normalise(text).split()}) > 1000
    settings = vectors.Settings(epochs=2)
    first, again = (vectors.document_vectors(reviews, settings, deterministic=True) for _ in range(2))
    assert first.shape == (40, 100)
    assert first.tobytes() == again.tobytes()
