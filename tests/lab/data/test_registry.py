from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from reweigh.errors import DataError
from reweigh.lab.data import registry


def test_names_below_a_root_or_the_variable(cifar_files, monkeypatch) -> None:
    cifar_files.binary10()
    assert registry.load("cifar10", cifar_files.root).name == "cifar10"
    monkeypatch.setenv("REWEIGH_DATA", str(cifar_files.root))
    assert registry.load("cifar10").name == "cifar10"


def test_without_a_folder_the_message_names_the_variable(monkeypatch) -> None:
    monkeypatch.delenv("REWEIGH_DATA", raising=False)
    with pytest.raises(DataError, match="REWEIGH_DATA"):
        registry.load("cifar10")


def test_digits_need_no_folder(monkeypatch) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn (extra demo)")
    monkeypatch.delenv("REWEIGH_DATA", raising=False)
    assert registry.load("digits").kind == "features"


def test_tin100_has_groups_of_five(tmp_path) -> None:
    labels = np.arange(100) % 10
    images = np.zeros((100, 4, 4, 3), np.uint8)
    np.savez(tmp_path / "tin100.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    assert registry.load("tin100", tmp_path).groups == (0, 0, 0, 0, 0, 1, 1, 1, 1, 1)


@pytest.mark.parametrize("name", ["imdb", "clothing1m", "mars"])
def test_every_name_has_a_loader_that_reports_its_folder(name, tmp_path) -> None:
    with pytest.raises(DataError, match=str(tmp_path)):
        registry.load(name, tmp_path)


def test_paths_by_kind(tmp_path, paint) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((10, 3)), y=np.arange(10) % 2)
    (tmp_path / "b.csv").write_text("text,kind\n" + "good,1\nbad,0\n" * 5)
    for i in range(10):
        paint(tmp_path / "pets" / str(i % 2) / f"{i}.png")
    assert registry.load(str(tmp_path / "a.npz")).kind == "features"
    assert registry.load(str(tmp_path / "b.csv"), label="kind", text="text").kind == "text"
    assert registry.load(str(tmp_path / "pets")).kind == "files"
    assert registry.load(str(tmp_path / "pets"), size=(4, 4)).kind == "images"
    assert registry.load(str(tmp_path / "a.npz"), seed=1).hash == registry.load(str(tmp_path / "a.npz"), seed=1).hash


def test_a_test_table(tmp_path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("x,label\n" + "1,1\n2,0\n" * 5)
    data = registry.load(str(tmp_path / "a.csv"), test=tmp_path / "b.csv", only=["x"])
    assert data.holdout == "test"


def test_a_relative_path_begins_in_the_root(tmp_path) -> None:
    (tmp_path / "mine.csv").write_text("a,label\n1,x\n2,y\n3,x\n4,y\n")
    (tmp_path / "checked.csv").write_text("a,label\n5,x\n")
    data = registry.load("mine.csv", tmp_path, test="checked.csv")
    assert (len(data.train), len(data.test)) == (4, 1)
    assert data.hash == registry.load(str(tmp_path / "mine.csv"), "elsewhere", test=tmp_path / "checked.csv").hash


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"did you mean 'cifar100'"):
        registry.load("cifar-100")


@pytest.mark.parametrize("spec", ["no/such/thing", "absent.zip"])
def test_missing_paths(spec) -> None:
    with pytest.raises(DataError, match=spec):
        registry.load(spec)


@pytest.mark.parametrize("spec", ["absent.npz", "absent.csv", "absent.parquet"])
def test_missing_files(spec, tmp_path) -> None:
    with pytest.raises(DataError, match=f"{spec}: no such file"):
        registry.load(str(tmp_path / spec))


@pytest.mark.parametrize(
    ("spec", "options", "told"),
    [
        ("cifar10", {"size": (4, 4)}, r"size \(image_size of a run\)"),
        ("a.npz", {"label": "x"}, r"label \(label_column of a run\)"),
        ("a.npz", {"only": ["x"]}, r"only \(only_columns of a run\)"),
        ("a.csv", {"size": (4, 4)}, r"size \(image_size of a run\)"),
        (".", {"text": "x"}, r"text \(text_column of a run\)"),
        (".", {"test": "x"}, r"test \(test_data of a run\)"),
    ],
)
def test_options_that_do_not_apply_are_refused_by_both_names(spec, options, told, tmp_path) -> None:
    with pytest.raises(ValueError, match=f"^{told} does not apply to {spec}"):
        registry.load(spec, tmp_path, **options)


def test_importing_the_registry_loads_no_optional_dependency() -> None:
    code = "import sys, reweigh.lab.data.registry; print({'sklearn', 'pyarrow', 'gensim', 'scipy'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
