from __future__ import annotations

from pathlib import Path

import pytest

from reweigh.lab.data.get import SOURCES


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REWEIGH_DATA", raising=False)


def test_list_names_every_licence(reweigh, tmp_path: Path) -> None:
    shown = reweigh("data", "list").stdout
    for name, source in SOURCES.items():
        assert name in shown
        assert source.licence in shown
    (tmp_path / "cifar-10-batches-py").mkdir()
    listed = reweigh("data", "list", "--root", tmp_path, "--json").json
    states = {entry["name"]: entry["state"] for entry in listed["data"]}
    assert states["cifar10"] == "downloaded"
    assert states["cifar100"] == "available"
    assert states["clothing1m"] == "manual download"
    assert states["digits"] == "built in"


@pytest.mark.parametrize(
    ("folder", "root", "name"),
    [
        ("cifar-10-batches-bin", "", "cifar10"),
        ("cifar-100-binary", "", "vehicles10"),
        ("mini_mars", "", "mars"),
        ("aclImdb", "aclImdb", "imdb"),
    ],
)
def test_list_finds_what_the_loaders_read(reweigh, tmp_path: Path, folder: str, root: str, name: str) -> None:
    (tmp_path / folder).mkdir()
    listed = reweigh("data", "list", "--root", tmp_path / root, "--json").json
    states = {entry["name"]: entry["state"] for entry in listed["data"]}
    assert states[name] == "downloaded"


@pytest.mark.parametrize("names", ["category_names_eng.txt", "annotations/category_names_eng.txt"])
@pytest.mark.parametrize("pictures", ["images/0", "0"])
def test_clothing1m_needs_its_lists_and_its_images(reweigh, tmp_path: Path, names: str, pictures: str) -> None:
    """They are separate downloads, and neither can be used alone."""

    def state(root: Path) -> str:
        listed = reweigh("data", "list", "--root", root, "--json").json["data"]
        return next(entry["state"] for entry in listed if entry["name"] == "clothing1m")

    folder = tmp_path / "clothing1M"
    assert state(folder) == "manual download"
    (folder / names).parent.mkdir(parents=True)
    (folder / names).write_text("T-Shirt\nShirt\n")
    assert (state(tmp_path), state(folder)) == ("manual download", "manual download")
    assert "then unpack the images" in reweigh("data", "get", "clothing1m", "--root", tmp_path).stderr
    (folder / pictures).mkdir(parents=True)
    assert (state(tmp_path), state(folder)) == ("downloaded", "downloaded")
    assert reweigh("data", "get", "clothing1m", "--root", tmp_path).code == 0
    (folder / names).unlink()
    assert state(tmp_path) == "manual download"


def test_get_what_is_already_downloaded(reweigh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reweigh("data", "get", "digits", "--json").json["paths"] == []
    (tmp_path / "aclImdb").mkdir()
    monkeypatch.setenv("REWEIGH_DATA", str(tmp_path))
    ended = reweigh("data", "get", "imdb")
    assert ended.stdout.splitlines() == [str(tmp_path / "aclImdb"), SOURCES["imdb"].licence]


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (["get", "cifar11"], 2, "did you mean 'cifar10'?"),
        (["get", "cifar10"], 2, "give --root DIR"),
        (["get", "mars", "--root", "x"], 3, "cannot be downloaded from here"),
        (["info", "cifar11"], 2, "did you mean 'cifar10'?"),
        (["info", "cifar10", "--root", "nowhere"], 3, "nowhere"),
        (["info", "mine.csv"], 3, "mine.csv: no such file"),
    ],
)
def test_wrong_input_is_one_message(reweigh, line: list[str], code: int, message: str) -> None:
    ended = reweigh("data", *line)
    assert ended.code == code
    assert message in ended.stderr


def test_info(reweigh, tmp_path: Path) -> None:
    shown = reweigh("data", "info", "digits").stdout
    for word in ("features 64", "1,200", "597", "sha256", "BSD"):
        assert word in shown
    (tmp_path / "mine.csv").write_text("a,kind\n" + "1,x\n2,y\n" * 10)
    found = reweigh("data", "info", tmp_path / "mine.csv", "--label", "kind", "--json").json
    assert (found["train"], found["test"], found["holdout"]) == (16, 4, "noisy hold-out")
    assert found["train_counts"] == [8, 8]
    assert found["licence"] is None


def test_doubtful_labels_are_reported_once(reweigh, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("a,label\n" + "".join(f"{i},{('1', '1.0', 'NA')[i % 3]}\n" for i in range(30)))
    small = ["--net", "linear", "--iterations", 4, "--device", "cpu", "--runs", tmp_path / "runs"]
    for line in (
        ("data", "info", tmp_path / "mine.csv"),
        ("suspects", tmp_path / "mine.csv", *small),
        ("train", "--data", tmp_path / "mine.csv", "--weighting", "CCE", *small),
        ("train", "--data", tmp_path / "mine.csv", "--weighting", "MAE", *small, "--seeds", "0,1", "--jobs", 2),
    ):
        ended = reweigh(*line)
        assert ended.code == 0, ended.stderr
        lines = [words for words in ended.stderr.splitlines() if "column 'label'" in words]
        for words, sentence in zip(("'NA' in 10 rows", "'1' in 10 rows, '1.0' in 10 rows"), lines, strict=True):
            assert sentence.startswith(f"warning: {tmp_path / 'mine.csv'}: column 'label' has {words}, ")
