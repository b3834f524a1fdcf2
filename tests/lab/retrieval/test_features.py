"""Features of videos: fusion of frames, streaming, and the cache."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from reweigh.errors import DataError
from reweigh.lab.batches import Normalisation, Resident
from reweigh.lab.data import mars
from reweigh.lab.data.mars import Tracklets
from reweigh.lab.nets.net import Net
from reweigh.lab.nets.registry import build
from reweigh.lab.retrieval import extract_features, score, video_features
from reweigh.lab.retrieval.cache import cache_settings
from reweigh.lab.retrieval.features import FeatureFusion, Frames, frame_features
from reweigh.lab.spec import Run
from reweigh.lab.train.model import Card

CARD = Card("cnn9", ("a", "b", "c"), "images", (3, 16, 8), Normalisation((0.5,) * 3, (0.25,) * 3))


@pytest.fixture
def net() -> Net:
    return build("resnet20", 3, generator=torch.Generator().manual_seed(0)).eval()


@pytest.fixture
def test_part(small_mars: Path) -> Tracklets:
    return mars.read_index(small_mars).test


@pytest.mark.parametrize("sizes", [[7], [1] * 7, [3, 4], [2, 2, 2, 1]])
@pytest.mark.parametrize("fusion", ["mean", "max", "confidence"])
def test_fusion_does_not_depend_on_batches(fusion: Any, sizes: list[int]) -> None:
    random = torch.Generator().manual_seed(0)
    x, c = torch.randn(7, 4, generator=random), torch.rand(7, generator=random)
    fused = FeatureFusion([2, 4, 1], fusion)
    for features, confidence in zip(x.split(sizes), c.split(sizes), strict=True):
        fused.add(Frames(features, confidence.double()))
    for row, span in zip(fused.result(), (slice(0, 2), slice(2, 6), slice(6, 7)), strict=True):
        expected = {
            "mean": x[span].double().mean(0),
            "max": x[span].double().amax(0),
            "confidence": (x[span].double() * c[span, None]).sum(0) / c[span].sum(),
        }[fusion]
        assert row == pytest.approx((expected / expected.norm()).numpy(), abs=1e-6)


def test_fusion_refuses_unknown_names_and_missing_frames() -> None:
    with pytest.raises(ValueError, match="fusion must be one of mean, max, confidence, not 'median'"):
        FeatureFusion([2], "median")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="only 0 of 2 frames were added"):
        FeatureFusion([2]).result()


def test_features_of_frames_are_those_of_the_net(net: Net, test_part: Tracklets) -> None:
    files = test_part.of(1)
    batches = list(frame_features(net, CARD, files, batch_size=3))
    assert [len(batch.features) for batch in batches] == [3, 1]
    pixels = torch.from_numpy(np.stack([files[i] for i in range(4)])).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        expected = net.features((pixels - 0.5) / 0.25)
        confidence = net.fc(expected).double().softmax(1).amax(1)
    assert torch.cat([b.features for b in batches]) == pytest.approx(expected, abs=1e-5)
    assert torch.cat([b.confidence for b in batches]) == pytest.approx(confidence, abs=1e-5)


def test_a_model_of_files_preprocesses_as_in_training(net: Net, test_part: Tracklets) -> None:
    card = replace(CARD, kind="files", shape=(3, 224, 224))
    (batch,) = frame_features(net, card, test_part.of(2))
    assert batch.features.shape == (2, 64)
    with pytest.raises(DataError, match="the model reads features, not images"):
        next(frame_features(net, replace(CARD, kind="features", shape=(4,)), test_part.of(2)))


def test_frames_have_the_size_of_training(net: Net, test_part: Tracklets) -> None:
    run = Run(data="mars", net="resnet20", weighting="CCE", image_size="16x8", augment="resize-crop-flip")
    enlarged, plain = replace(CARD, run=run), replace(CARD, run=replace(run, augment="pad-crop-flip"))
    files = test_part.of(2)
    random = np.random.default_rng(0)
    for i in range(len(files)):  # noise, so that each way of resizing differs
        Image.fromarray(random.integers(0, 256, (40, 20, 3), dtype=np.uint8)).save(files.path(i))
    for card in (enlarged, plain):
        seen = Resident(
            files.array((16, 8)),
            np.zeros(len(files), np.int64),
            augmentation=card.run.augment,
            normalisation=card.normalisation,
        )
        with torch.no_grad():
            expected = net.features(next(seen.evaluation(8)).inputs)
        (batch,) = frame_features(net, card, files)
        assert batch.features == pytest.approx(expected, abs=1e-5)


def test_the_cache_distinguishes_scales(net: Net, test_part: Tracklets) -> None:
    run = Run(data="mars", net="resnet20", weighting="CCE", image_size="16x8", augment="pad-crop-flip")
    larger = replace(run, augment="resize-crop-flip")
    plain, padded, enlarged, files = (
        cache_settings(net, card, test_part, "mean", 4)
        for card in (
            CARD,
            replace(CARD, run=run),
            replace(CARD, run=larger),
            replace(CARD, kind="files", run=replace(larger, image_size=None)),
        )
    )
    assert plain == padded
    assert enlarged != plain
    assert files | {"kind": "images"} == plain  # files have one scale


def test_features_of_single_tracklets_and_of_all(net: Net, test_part: Tracklets) -> None:
    together = video_features(net, CARD, test_part, batch_size=5)
    assert together.shape == (9, 64)
    assert np.linalg.norm(together, axis=1) == pytest.approx(1)
    for row in range(9):
        assert video_features(net, CARD, test_part, range(row, row + 1))[0] == pytest.approx(together[row], abs=1e-5)


def test_the_cache_is_exact_and_keyed_by_its_inputs(net: Net, test_part: Tracklets, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    stored = extract_features(
        net, CARD, test_part, tmp_path / "cache", block=4, progress=lambda done, total: seen.append((done, total))
    )
    assert (len(stored), seen[-1]) == (9, (22, 22))
    assert stored.all() == pytest.approx(video_features(net, CARD, test_part), abs=1e-5)
    assert (stored[3:6] == stored.all()[3:6]).all()
    assert len(list(stored.folder.glob("*.safetensors"))) == 3

    times = {path: path.stat().st_mtime_ns for path in stored.folder.glob("*.safetensors")}
    assert extract_features(net, CARD, test_part, tmp_path / "cache", block=4) == stored
    assert {path: path.stat().st_mtime_ns for path in stored.folder.glob("*.safetensors")} == times

    folders = {stored.folder}
    folders.add(extract_features(net, CARD, test_part, tmp_path / "cache", "max", block=4).folder)
    folders.add(extract_features(net, replace(CARD, normalisation=None), test_part, tmp_path / "cache", block=4).folder)
    files = test_part.frames
    assert files is not None
    files.path(0).write_bytes(files.path(21).read_bytes())
    folders.add(extract_features(net, CARD, test_part, tmp_path / "cache", block=4).folder)
    with torch.no_grad():
        next(net.parameters()).mul_(2)
    folders.add(extract_features(net, CARD, test_part, tmp_path / "cache", block=4).folder)
    assert len(folders) == 5


def test_only_missing_and_damaged_blocks_are_computed_again(net: Net, test_part: Tracklets, tmp_path: Path) -> None:
    stored = extract_features(net, CARD, test_part, tmp_path, block=2)
    before = stored.all()
    stored.path(1).unlink()
    stored.path(2).write_bytes(stored.path(2).read_bytes()[:50])
    stored.path(3).write_bytes(stored.path(4).read_bytes())  # of another shape
    modified = stored.path(0).stat().st_mtime_ns
    with pytest.raises(DataError, match=r"00001\.safetensors: cannot be read"):
        stored[2:4]
    with pytest.raises(DataError, match=r"00002\.safetensors: not a file of features"):
        stored[4:6]
    assert extract_features(net, CARD, test_part, tmp_path, block=2).all() == pytest.approx(before, abs=1e-6)
    assert stored.path(0).stat().st_mtime_ns == modified
    with pytest.raises(ValueError, match="a non-empty slice"):
        stored[4:4]
    with pytest.raises(ValueError, match="block must be 1 or more"):
        extract_features(net, CARD, test_part, tmp_path, block=0)


KILLED = """
import os, sys, torch
from reweigh.lab.batches import Normalisation
from reweigh.lab.data import mars
from reweigh.lab.nets.registry import build
from reweigh.lab.retrieval import extract_features
from reweigh.lab.train.model import Card
card = Card("cnn9", ("a", "b", "c"), "images", (3, 16, 8), Normalisation((0.5,) * 3, (0.25,) * 3))
net = build("resnet20", 3, generator=torch.Generator().manual_seed(0)).eval()
extract_features(net, card, mars.read_index(sys.argv[1]).test, sys.argv[2], block=2, batch_size=2,
                 progress=lambda done, total: os.kill(os.getpid(), 9) if done > 12 else None)
"""


def test_a_killed_extraction_resumes(net: Net, small_mars: Path, tmp_path: Path) -> None:
    died = subprocess.run([sys.executable, "-c", KILLED, str(small_mars), str(tmp_path / "cache")], check=False)
    assert died.returncode == -9
    (folder,) = (tmp_path / "cache").iterdir()
    times = {path: path.stat().st_mtime_ns for path in sorted(folder.glob("*.safetensors"))}
    assert 0 < len(times) < 5
    test = mars.read_index(small_mars).test
    stored = extract_features(net, CARD, test, tmp_path / "cache", block=2)
    assert stored.folder == folder
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert stored.all() == pytest.approx(video_features(net, CARD, test), abs=1e-5)


def test_what_cannot_be_extracted_is_refused(net: Net, small_mars: Path, tmp_path: Path) -> None:
    test = mars.read_index(small_mars).test
    with pytest.raises(DataError, match="this index has no names of frames"):
        extract_features(net, CARD, replace(test, frames=None), tmp_path)
    stop = test.stop.copy()
    stop[3] = test.start[3]
    with pytest.raises(DataError, match=r"tracklet 3 \(person 2, camera 2\) is empty"):
        extract_features(net, CARD, replace(test, stop=stop), tmp_path)
    files = test.frames
    assert files is not None
    files.path(5).write_bytes(b"no image")
    with pytest.raises(DataError, match="not a readable image"):
        extract_features(net, CARD, test, tmp_path)
    for i in range(5):
        files.path(i).unlink()
    with pytest.raises(DataError, match="5 of 22 listed files are missing"):
        extract_features(net, CARD, test, tmp_path)


def test_stored_features_are_scored_from_disk(net: Net, small_mars: Path, tmp_path: Path) -> None:
    index = mars.read_index(small_mars)
    test, queries = index.test, index.queries
    stored = extract_features(net, CARD, test, tmp_path, block=2)
    query = stored.all()[queries], test.persons[queries], test.cameras[queries]
    one = score(*query, stored, test.persons, test.cameras)
    two = score(*query, stored.all(), test.persons, test.cameras)
    assert one.average_precision.tolist() == two.average_precision.tolist()
