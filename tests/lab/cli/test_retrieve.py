from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

NET = ["--net", "resnet10-thin", "--image-size", "32", "--iterations", "4", "--evaluate-every", "4"]
REST = ["--batch-size", "8", "--device", "cpu"]


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four persons for training and three for testing, each seen by two cameras; a person is a colour."""
    root, draws = tmp_path_factory.mktemp("people"), np.random.default_rng(0)
    for part, ids in (("train", (1, 3, 5, 7)), ("query", (2, 4, 6)), ("gallery", (2, 4, 6))):
        for person in ids:
            colour = draws.integers(0, 256, 3) if part != "gallery" else np.full(3, 40 * person)
            for camera in (2,) if part == "gallery" else (1,) if part == "query" else (1, 2):
                folder = root / part / str(person) / str(camera) / "1"
                folder.mkdir(parents=True)
                for frame in range(9):
                    pixels = (colour + draws.integers(-20, 20, (32, 16, 3))).clip(0, 255).astype(np.uint8)
                    Image.fromarray(pixels).save(folder / f"{frame}.png")
    return root


@pytest.fixture(scope="session")
def trained(reweigh: Callable[..., Any], people: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a run on these people."""
    root = tmp_path_factory.mktemp("runs")

    def train(*words: str) -> Path:
        settings = [*(NET[2:] if "--net" in words else NET), *REST]
        ended = reweigh("train", "--data", f"tracklets:{people}", *settings, *words, "--runs", root, "--json")
        assert ended.code == 0, ended.stderr
        return Path(ended.json["folder"])

    return train


@pytest.fixture
def call(reweigh: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    return lambda *words: reweigh("retrieve", *words, "--cache", tmp_path / "cache", "--device", "cpu")


def test_scores_page_and_table(call: Any, trained: Any, tmp_path: Path) -> None:
    run = trained("--weighting", "CCE")
    page, scores = tmp_path / "page.html", tmp_path / "scores.csv"
    ended = call(run, "--page", page, "-o", scores)
    assert ended.code == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0].split() == ["CMC-1", "CMC-5", "CMC-10", "CMC-20", "mAP"]
    assert lines[2:] == [str(scores), str(page)]
    rows = list(csv.DictReader(scores.read_text().splitlines()))
    assert [row["person"] for row in rows] == ["2", "4", "6"]
    assert all(row["matches"] == "1" for row in rows)
    assert [row["tracklet_name"] for row in rows] == ["query/2/1/1", "query/4/1/1", "query/6/1/1"]
    assert all(row["nearest_tracklet_name"].split("/")[1] == row["nearest_person_name"] for row in rows)
    found = call(run, "--json").json
    assert (found["queries"], found["matched"], found["gallery"]) == (3, 3, 6)
    assert f"{100 * found['mAP']:.2f}" in ended.stdout
    assert found["mAP"] == pytest.approx(np.mean([float(row["ap"]) for row in rows]), abs=1e-5)
    html = page.read_text(encoding="utf-8")
    assert "resnet10-thin" in html
    assert str(tmp_path) not in html


def test_features_are_kept_and_written(call: Any, trained: Any, people: Path, tmp_path: Path) -> None:
    run = trained("--weighting", "CCE")
    ended = call(run, "-o", tmp_path / "features.npz", "--fusion", "max", "--rule", "python", "--json")
    assert ended.json["gallery"] == 3
    with np.load(tmp_path / "features.npz") as found:
        assert found["features"].shape == (6, 128)
        assert found["persons"][found["queries"]].tolist() == [2, 4, 6]
        np.testing.assert_allclose(np.linalg.norm(found["features"], axis=1), 1, rtol=1e-5)
        assert found["person_names"].tolist() == ["2", "4", "6"] * 2
        assert found["tracklet_names"][found["queries"]].tolist() == ["query/2/1/1", "query/4/1/1", "query/6/1/1"]
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.safetensors")}
    assert kept
    again = call(run, "--data", people, "--fusion", "max", "--json").json
    assert again["rule"] == "official"
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_snippets_are_compared_by_caes_own_net(call: Any, trained: Any, tmp_path: Path) -> None:
    run = trained("--net", "cae-resnet10-thin", "--method", "CAE(frames=2)", "--sampler", "balanced")
    first = call(run, "--fusion", "snippets", "--json").json
    for path in list((tmp_path / "cache").rglob("*.safetensors"))[:2]:
        path.write_bytes(b"damaged")
    assert call(run, "--fusion", "snippets", "--json").json == first
    assert call(run, "--fusion", "snippets", "-o", tmp_path / "f.npz").code == 2


def test_other_methods_of_video(call: Any, trained: Any) -> None:
    for words in (("drsa2-resnet10-thin", "DRSA(frames=2)"), ("resnet10-thin", "OSMCAA")):
        run = trained("--net", words[0], "--method", words[1], "--sampler", "balanced")
        found = call(run, "--json")
        assert found.code == 0, found.stderr
        assert 0 <= found.json["mAP"] <= 1


def test_wrong_input_is_one_message(call: Any, trained: Any, finished: Path, people: Path, tmp_path: Path) -> None:
    run = trained("--weighting", "CCE")
    for words, code, message in (
        ((finished,), 3, "not trained on tracklets; set --data"),
        ((finished, "--data", people), 3, "the model reads"),
        ((run, "--data", tmp_path / "nothing"), 3, "nothing: no such folder or table"),
        ((run, "--data", f"mars:{tmp_path}"), 3, "neither info/ nor bbox_train/"),
        ((run, "-o", "scores.txt"), 2, "expected a file that ends in .csv or .npz"),
        ((run, "--fusion", "snippets"), 3, "fusion 'snippets' requires a net of CAE"),
    ):
        ended = call(*words)
        assert ended.code == code, ended.stderr
        assert message in ended.stderr


def test_a_query_without_a_match_and_a_missing_frame(call: Any, trained: Any, tmp_path: Path, people: Path) -> None:
    run = trained("--weighting", "CCE")
    table = tmp_path / "people.csv"
    for name in ("query/2/1/1/0.png", "gallery/4/2/1/0.png"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes((people / name).read_bytes())
    rows = ["path,person,camera,tracklet,part", "query/2/1/1/0.png,2,1,1,query", "gallery/4/2/1/0.png,4,2,1,gallery"]
    table.write_text("\n".join(rows) + "\n")
    ended = call(run, "--data", table)
    assert ended.code == 3
    assert "no query has a match" in ended.stderr
    table.write_text("\n".join([*rows, "gone.png,2,2,1,gallery"]) + "\n")
    ended = call(run, "--data", table)
    assert ended.code == 3
    assert "gone.png" in ended.stderr
    assert ended.stdout == ""


def test_people_by_their_names_and_a_gallery_without_anybody(
    call: Any, trained: Any, tmp_path: Path, people: Path
) -> None:
    run, frame = trained("--weighting", "CCE"), (people / "query/2/1/1/0.png").read_bytes()
    for name in ("ann/1", "ann/2", "bob/1", "bob/2"):
        (tmp_path / "videos" / "gallery" / name / "1").mkdir(parents=True)
        (tmp_path / "videos" / "gallery" / name / "1" / "0.png").write_bytes(frame)
    words = (run, "--data", tmp_path / "videos", "-o", tmp_path / "scores.csv", "--page", tmp_path / "page.html")
    ended = call(*words, "--rule", "python")
    assert ended.code == 3
    assert "all 4 tracklets are queries or junk" in ended.stderr
    assert "use the official rule (--rule official)" in ended.stderr
    assert call(*words).code == 0
    rows = list(csv.DictReader((tmp_path / "scores.csv").read_text().splitlines()))
    assert [row["person_name"] for row in rows] == ["ann", "ann", "bob", "bob"]
    assert '"person":"ann"' in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_tracklets_are_not_written_over(call: Any, trained: Any, tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    table.write_text("path,person,camera,tracklet,part\n")
    ended = call(trained("--weighting", "CCE"), "--data", table, "-o", table)
    assert ended.code == 2
    assert "which is an input of this command" in ended.stderr


@pytest.mark.slow
def test_real_frames(reweigh: Callable[..., Any], call: Any, tmp_path: Path) -> None:
    """Mini MARS from one end to the other: training with abnormal frames, retrieval, the page."""
    root = Path(os.environ.get("REWEIGH_DATA", ".")) / "mini_mars"
    if not root.is_dir():
        pytest.skip("no mini_mars below REWEIGH_DATA")
    words = ["--data", "mars", "--data-root", root, "--image-size", "32x16", "--net", "resnet10-thin"]
    words += [
        "--noise",
        "frames",
        "--rate",
        "0.4",
        "--weighting",
        "DM(0.5, 8)",
        "--iterations",
        "10",
        "--device",
        "cpu",
    ]
    ended = reweigh("train", *words, "--runs", tmp_path, "--json")
    assert ended.code == 0, ended.stderr
    found = call(ended.json["folder"], "--page", tmp_path / "page.html", "--json").json
    assert (found["queries"], found["matched"], found["gallery"]) == (32, 32, 64)
    assert (tmp_path / "page.html").stat().st_size < 1_000_000
    found = call(ended.json["folder"], "--rule", "python", "--json").json
    assert (found["queries"], found["matched"], found["gallery"]) == (32, 23, 32)
