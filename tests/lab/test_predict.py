from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from reweigh.errors import DataError, DataWarning
from reweigh.lab.batches.statistics import Normalisation
from reweigh.lab.data.digits import load as load_digits
from reweigh.lab.nets.registry import build
from reweigh.lab.predict import predict
from reweigh.lab.run import execute
from reweigh.lab.spec import Run
from reweigh.lab.train.model import Card, load_model, save_model


def trained(root: Path, data: str, net: str = "mlp-16", **fields: object) -> Path:
    """Return the model of a short run."""
    short: dict[str, object] = {"iterations": 60, "evaluate_every": 60, "batch_size": 32, "device": "cpu"}
    run = Run.from_mapping({"data": data, "net": net, "weighting": "CCE"} | short | fields)
    return execute(run, root) / "model"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("digits"), "digits", iterations=200)


def test_predictions_have_the_test_accuracy_of_training(digits: Path, tmp_path: Path) -> None:
    part = load_digits().test
    np.savez(tmp_path / "new.npz", x=part.inputs, y=part.labels)
    found = predict(digits, tmp_path / "new.npz", device="cpu")
    _, card = load_model(digits)
    assert (found.classes == part.labels).mean() == card.metrics["final"]["test_accuracy"]
    assert found.examples[:2] == ("1", "2")
    assert found.class_names == tuple("0123456789")
    np.testing.assert_allclose(found.probabilities.sum(1), 1)
    np.testing.assert_array_equal(found.p, found.probabilities[range(len(part)), found.classes])


def test_the_best_model_and_progress(digits: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "new.npz", features=load_digits().test.inputs[:300])
    calls: list[tuple[int, int]] = []
    found = predict(digits, tmp_path / "new.npz", "best", device="cpu", progress=lambda *at: calls.append(at))
    assert len(found.examples) == 300
    assert calls == [(256, 300), (300, 300)]


def pictures(root: Path, count: int = 8) -> Path:
    for k, name in enumerate(("dark", "light")):
        (root / name).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (9, 11), (180 * k + 3 * i,) * 3).save(root / name / f"{i}.png")
    return root


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "pictures")
    model = trained(tmp_path / "runs", str(folder), image_size=8)
    (folder / ".hidden").write_text("ignored")
    found = predict(model, folder)
    assert found.examples[0] == "dark/0.png"
    assert [found.class_names[k] for k in found.classes] == [name.split("/")[0] for name in found.examples]
    one = predict(model, folder / "light" / "3.png")
    assert one.examples == ("3.png",)
    assert one.class_names[one.classes[0]] == "light"
    (folder / "light" / "again").symlink_to(folder / "dark", target_is_directory=True)
    with pytest.raises(DataError, match=r"again: a link to the folder .*dark"):
        predict(model, folder)
    (folder / "light" / "again").unlink()
    (folder / "notes.txt").write_text("no picture")
    with pytest.warns(DataWarning, match=r"skipped files that are not images: 1 \(notes.txt\)"):
        assert len(predict(model, folder).examples) == 16
    (folder / "broken.png").write_text("no picture")
    with pytest.warns(DataWarning), pytest.raises(DataError, match=r"1 of 17 images cannot be read:\n.*broken\.png"):
        predict(model, folder)


def test_a_model_for_large_images_keeps_its_stem(tmp_path: Path) -> None:
    labels = np.arange(10) % 2
    images = np.repeat(labels * 200, 96 * 96 * 3).reshape(10, 96, 96, 3).astype(np.uint8)
    np.savez(tmp_path / "train.npz", x_train=images, y_train=labels)
    model = trained(tmp_path / "runs", str(tmp_path / "train.npz"), "resnet20", iterations=2, evaluate_every=2)
    net, card = load_model(model)
    assert card.large_stem
    assert net.state_dict()["conv1.weight"].shape[2] == 7
    assert len(predict(model, tmp_path / "train.npz").classes) == 10


def test_images_in_an_array_for_a_net_that_reads_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    images = (rng.integers(0, 60, (40, 32, 32)) + 180 * labels[:, None, None]).astype(np.uint8)
    np.savez(tmp_path / "train.npz", x_train=images, y_train=labels)
    model = trained(tmp_path / "runs", str(tmp_path / "train.npz"), "cifarnet", iterations=4, evaluate_every=4)
    np.savez(tmp_path / "grey.npz", images=images[:6])
    grey = predict(model, tmp_path / "grey.npz")
    np.savez(tmp_path / "rgb.npz", images=images[:6, :, :, None].repeat(3, axis=3))
    np.testing.assert_array_equal(predict(model, tmp_path / "rgb.npz").probabilities, grey.probabilities)
    Image.fromarray(images[0]).save(tmp_path / "one.png")
    np.testing.assert_allclose(predict(model, tmp_path / "one.png").probabilities[0], grey.probabilities[0], rtol=1e-4)


def test_texts_from_a_table_or_line_by_line(tmp_path: Path) -> None:
    rows = ["a fine film,pos", "a dull film,neg"] * 20
    (tmp_path / "train.csv").write_text("\n".join(["review,label", *rows]) + "\n")
    model = trained(tmp_path / "runs", str(tmp_path / "train.csv"), "linear", text_column="review")
    (tmp_path / "new.csv").write_text("review\nfine\n dull \n")
    (tmp_path / "new.txt").write_text("fine\ndull\n")
    for name in ("new.csv", "new.txt"):
        found = predict(model, tmp_path / name)
        assert [found.class_names[k] for k in found.classes] == ["pos", "neg"]
    (tmp_path / "gaps.csv").write_text('n,review\n1,fine\n2,\n3,"  "\n\n4,dull\n')
    (tmp_path / "gaps.txt").write_text("fine\n\n  \ndull\n\n")
    for name, empty in (("gaps.csv", ("line 3", "line 4")), ("gaps.txt", ("line 2", "line 3"))):
        found = predict(model, tmp_path / name)
        assert found.examples == ("1", "2", "3", "4"), "empty texts keep their row"
        assert found.empty == empty
        assert [found.class_names[found.classes[k]] for k in (0, 3)] == ["pos", "neg"]
    (tmp_path / "gaps.csv").write_text('n,review\n1,\n2,"  "\n')
    (tmp_path / "gaps.txt").write_text("\n  \n")
    for name in ("gaps.csv", "gaps.txt"):
        with pytest.raises(DataError, match=f"{name}: nothing to predict: all texts are empty"):
            predict(model, tmp_path / name)
    (tmp_path / "other.csv").write_text("text\nfine\n")
    with pytest.raises(DataError, match="no column 'review'; there are 'text'"):
        predict(model, tmp_path / "other.csv")


def test_a_table_of_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal(1.7e9 + 30 * k, 3)},{rng.normal(k / 100, 1e-3)},{'ab'[k]}" for k in (0, 1) for _ in range(30)]
    (tmp_path / "train.csv").write_text("\n".join(["x,y,label", *rows]) + "\n")
    model = trained(tmp_path / "runs", str(tmp_path / "train.csv"))
    found = predict(model, tmp_path / "train.csv")
    assert [found.class_names[k] for k in found.classes] == ["a"] * 30 + ["b"] * 30
    swapped = [",".join((y, "9", x)) for x, y, _ in (row.split(",") for row in rows)]
    (tmp_path / "new.csv").write_text("\n".join(["y,z,x", *swapped]) + "\n")
    np.testing.assert_array_equal(predict(model, tmp_path / "new.csv").probabilities, found.probabilities)
    numbers = np.array([row.split(",")[:2] for row in rows], dtype=np.float64)
    np.savez(tmp_path / "new.npz", x=numbers)
    np.testing.assert_array_equal(predict(model, tmp_path / "new.npz").probabilities, found.probabilities)
    np.savez(tmp_path / "wide.npz", x=np.zeros((2, 3)))
    with pytest.raises(DataError, match="features 3, but the model reads features 2"):
        predict(model, tmp_path / "wide.npz")
    for value in (np.nan, 1e300):
        np.savez(tmp_path / "bad.npz", x=np.array([[0, 0], [0, value]]))
        with pytest.raises(DataError, match=r"bad\.npz: inputs: .* at example 1, feature 1 is not finite"):
            predict(model, tmp_path / "bad.npz")
    (tmp_path / "less.csv").write_text("x\n1\n")
    with pytest.raises(DataError, match="no column 'y'; there are 'x'"):
        predict(model, tmp_path / "less.csv")


def test_a_model_without_a_run(tmp_path: Path) -> None:
    net = build("linear", 2, 3, generator=torch.Generator())
    card = Card("linear", ("no", "yes"), "features", (3,), Normalisation((1.0,) * 3, (2.0,) * 3))
    save_model(tmp_path / "model", net, card)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(tmp_path / "x.npz", x)
    expected = net(torch.from_numpy((x - 1) / 2)).double().softmax(1).detach().numpy()
    np.testing.assert_allclose(predict(tmp_path / "model", tmp_path / "x.npz").probabilities, expected, rtol=1e-6)


def test_inputs_that_do_not_fit_are_refused(digits: Path, tmp_path: Path) -> None:
    def refused(name: str, message: str) -> None:
        with pytest.raises(DataError, match=f"{name}: .*{message}"):
            predict(digits, tmp_path / name)

    refused("nothing", "no such file or folder")
    (tmp_path / "empty").mkdir()
    refused("empty", "no images in this folder")
    Image.new("L", (8, 8)).save(tmp_path / "one.png")
    refused("one.png", "images, but the model reads 64 features")
    np.savez(tmp_path / "wide.npz", x=np.zeros((2, 65)))
    refused("wide.npz", "features 65, but the model reads features 64")
    np.savez(tmp_path / "two.npz", x_train=np.zeros((2, 64)), x_test=np.zeros((2, 64)))
    refused("two.npz", "expected one array of inputs among x_train, x_test, not 2")
    np.savez(tmp_path / "none.npz", x=np.zeros((0, 64)))
    refused("none.npz", "no examples")
    (tmp_path / "a.txt").write_text("text\n")
    refused("a.txt", "the model was not trained on texts")
    (tmp_path / "a.csv").write_text("x\n1\n")
    refused("a.csv", "the model was not trained on a table")
    with pytest.raises(ValueError, match="device is"):
        predict(digits, tmp_path / "wide.npz", device="tpu")
    with pytest.raises(DataError, match=r"model\.json"):
        predict(tmp_path, tmp_path / "wide.npz")
