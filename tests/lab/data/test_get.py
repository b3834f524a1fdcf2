from __future__ import annotations

import hashlib
import io
import tarfile

import pytest

from reweigh.errors import DataError
from reweigh.lab.data import cifar, get
from reweigh.lab.data.source import download


@pytest.fixture
def offline(monkeypatch):
    """Every attempt to open an address fails, as without a network."""

    def refuse(*_args: object, **_more: object) -> None:
        raise OSError("network is unreachable")

    monkeypatch.setattr(download.urllib.request, "urlopen", refuse)


@pytest.fixture
def by_hand(cifar_files, tmp_path):
    """A data folder with a CIFAR archive put there by hand, and the table that knows its digest."""
    folder = cifar_files.python10()
    root = tmp_path / "root"
    root.mkdir()
    with tarfile.open(root / "cifar-10-python.tar.gz", "w:gz") as pack:
        pack.add(folder, folder.name)
    raw = (root / "cifar-10-python.tar.gz").read_bytes()
    remote = download.Remote("http://127.0.0.1:9/c.tar.gz", len(raw), hashlib.md5(raw).hexdigest())
    source = get.Source({"cifar-10-python.tar.gz": remote}, ("cifar-10-batches-py",), "")
    return root, {"cifar10": source}


@pytest.mark.usefixtures("offline")
def test_an_archive_put_there_by_hand_is_unpacked(by_hand) -> None:
    root, sources = by_hand
    assert get.get("cifar10", root, sources=sources) == (root / "cifar-10-batches-py",)
    assert len(cifar.load(root).train) == 20
    assert get.get("cifar10", root, sources=sources) == (root / "cifar-10-batches-py",)


@pytest.mark.usefixtures("offline")
def test_a_wrong_archive_put_there_by_hand_is_refused(by_hand) -> None:
    root, sources = by_hand
    path = root / "cifar-10-python.tar.gz"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(DataError, match="md5"):
        get.get("cifar10", root, sources=sources)
    assert not (root / "cifar-10-batches-py").exists()


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", ["cifar10", "cifar100", "vehicles10", "cifar-n", "imdb"])
def test_without_a_network_the_message_says_what_to_do(name, tmp_path) -> None:
    file, remote = next(iter(get.SOURCES[name].files.items()))
    with pytest.raises(DataError) as caught:
        get.get(name, tmp_path)
    assert remote.url in str(caught.value)
    assert str(tmp_path / file) in str(caught.value)
    assert "network is unreachable" in str(caught.value)


@pytest.mark.parametrize("name", ["clothing1m", "mars", "tin100"])
def test_sets_without_an_address_give_instructions(name, tmp_path) -> None:
    with pytest.raises(DataError, match="cannot be downloaded") as caught:
        get.get(name, tmp_path)
    assert str(tmp_path / get.SOURCES[name].gives[0]) in str(caught.value)


def test_what_is_there_needs_nothing(tmp_path) -> None:
    (tmp_path / "aclImdb").mkdir()
    assert get.get("imdb", tmp_path) == (tmp_path / "aclImdb",)
    assert get.get("digits", tmp_path) == ()


@pytest.mark.usefixtures("offline")
def test_the_binary_version_is_no_substitute_for_the_download(tmp_path) -> None:
    """CIFAR-N's labels fit the python version alone."""
    (tmp_path / "cifar-10-batches-bin").mkdir()
    assert get.SOURCES["cifar10"].is_in(tmp_path)
    with pytest.raises(DataError, match="network is unreachable"):
        get.get("cifar10", tmp_path)


def test_unknown_names(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"not 'cifar1O' \(did you mean 'cifar10'\?\)"):
        get.get("cifar1O", tmp_path)


@pytest.mark.usefixtures("offline")
def test_an_archive_without_the_promised_folder_is_refused(tmp_path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as pack:
        pack.addfile(tarfile.TarInfo("other"), io.BytesIO(b""))
    source = get.Source({"x.tar": download.Remote("http://127.0.0.1:9/x.tar")}, ("wanted",), "")
    with pytest.raises(DataError, match="does not contain"):
        get.get("x", tmp_path, sources={"x": source})


def test_every_source_states_its_terms_and_facts() -> None:
    for name, source in get.SOURCES.items():
        assert source.licence, name
        assert source.files or source.by_hand or not source.gives, name
        for remote in source.files.values():
            assert remote.md5 is None or len(remote.md5) == 32
