"""Training on frames through `Run`: identities as classes, in memory or from files, with and without noise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paper.protocols import paper
from reweigh.lab.data.tracklets import index_of
from reweigh.lab.record import read_header, read_rows
from reweigh.lab.retrieval import extract_features, gallery_rows, score
from reweigh.lab.run import execute
from reweigh.lab.run.material import gather
from reweigh.lab.spec import Run
from reweigh.lab.train.model import load_model


@pytest.fixture
def run(small_mars: Path) -> Run:
    return Run(
        data="mars",
        data_root=str(small_mars),
        image_size="16x8",
        net="resnet20",
        weighting="DM(0.5, 8)",
        iterations=4,
        batch_size=6,
        sampler="balanced",
        classes_per_batch=3,
        augment="pad-crop-flip",
        evaluate_every=2,
        device="cpu",
    )


def test_frames_are_trained_on_and_the_model_retrieves(run: Run, small_mars: Path, tmp_path: Path) -> None:
    folder = execute(run, tmp_path / "runs")
    rows = read_rows(folder)
    assert [row["step"] for row in rows] == [2, 4]
    assert not any("test" in key for key in rows[-1])
    assert json.loads((folder / "result.json").read_text())["best"] is None
    net, card = load_model(folder / "model")
    assert (card.class_names, card.kind, card.shape) == (("0001", "0003", "0007"), "images", (3, 16, 8))

    index = index_of("mars", small_mars)
    test, queries = index.test, index.queries
    stored = extract_features(net, card, test, tmp_path / "cache")
    rows_of = gallery_rows(test.persons, queries, "python")
    features = stored.all()
    query = features[queries], test.persons[queries], test.cameras[queries]
    scores = score(*query, features[rows_of], test.persons[rows_of], test.cameras[rows_of], "python")
    assert scores.valid.tolist() == [True, True, False, False]
    assert 0 < scores.mean_ap <= 1


def test_frames_as_files_are_preprocessed_as_in_the_paper(run: Run, tmp_path: Path) -> None:
    files = replace(
        run,
        net="resnet10-thin",
        image_size=None,
        augment="resize-crop-flip",
        iterations=1,
        evaluate_every=1,
        batch_size=3,
    )
    folder = execute(files, tmp_path)
    assert load_model(folder / "model")[1].shape == (3, 224, 224)


def test_the_papers_recipe_is_a_run() -> None:
    mars = paper("mars", weighting="CCE")
    assert (mars.net, mars.batch_size, mars.iterations, mars.lr) == ("bn-inception", 180, 50_000, 0.01)
    assert replace(mars, sampler="balanced", classes_per_batch=60).batch_size // 60 == 3


@pytest.mark.parametrize("noise", ["frames", "background", "stranger", "identity"])
def test_noise_of_frames_is_recorded_with_its_truth(run: Run, tmp_path: Path, noise: str) -> None:
    noisy = replace(run, noise=noise, rate=0.4, iterations=2)
    material, plain = gather(noisy), gather(run)
    assert material.corruption is not None
    assert material.clean is not None
    assert plain.clean is None
    wrong = material.train.labels != material.clean
    assert wrong.sum() == round(0.4 * 21) == 8
    assert material.corruption.measured == pytest.approx(8 / 21)
    assert (material.clean[wrong] == -1).sum() == {"frames": 3, "background": 8}.get(noise, 0)
    changed = (np.asarray(material.train.inputs) != np.asarray(plain.train.inputs)).any(axis=(1, 2, 3))
    assert not changed[~wrong].any()
    assert material.data_hash == plain.data_hash

    folder = execute(noisy, tmp_path)
    assert read_header(folder).details["noise"]["kind"] == f"{noise}(rate=0.4)"
    last = read_rows(folder)[-1]
    assert 0 <= last["p_noisy"] <= 1
    assert 0 <= last["fit_clean"] <= 1


def test_settings_without_effect_are_refused(run: Run) -> None:
    noisy = replace(run, noise="background", rate=0.4)
    with pytest.raises(ValueError, match="validation_labels is 'clean', but backgrounds show nobody"):
        gather(replace(noisy, validation=0.3))
    assert gather(replace(noisy, validation=0.3, validation_labels="noisy")).validation is not None
    with pytest.raises(ValueError, match="noise_count is 'overall', which has no effect on background noise"):
        gather(replace(noisy, noise_count="overall"))
    with pytest.raises(ValueError, match="background takes 0 arguments"):
        gather(replace(noisy, noise="background(3)"))


def test_image_sizes() -> None:
    run = Run(data="mars", net="resnet20", weighting="CCE", image_size="128x64")
    assert run.image_size == "128x64"
    assert replace(run, image_size="32x32") == replace(run, image_size=32) == replace(run, image_size="32")
    for wrong in ("2x64", "128x", "128x64x3", "x", 2000):
        with pytest.raises(ValueError, match="image_size is"):
            replace(run, image_size=wrong)
