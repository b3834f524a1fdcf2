"""A saved model gives the same logits after loading; a damaged one is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from reweigh.errors import DataError
from reweigh.lab.batches.statistics import Normalisation
from reweigh.lab.nets.registry import build
from reweigh.lab.spec import Run
from reweigh.lab.train.model import Card, load_model, save_model

FEATURES = Card(
    net="mlp-8",
    class_names=("cat", "dog", "été"),
    kind="features",
    shape=(5,),
    normalisation=Normalisation((0.1,) * 5, (1.0,) * 5),
    dropout=0.25,
    run=Run(data="digits", net="mlp-8", weighting="DM(0.5, 8)", dropout=0.25),
    metrics={"final": {"accuracy": 0.5}, "best": {"accuracy": 0.75, "step": 3}},
)
IMAGES = Card(net="resnet20", class_names=tuple("abcdefghij"), kind="images", shape=(3, 32, 32))


def net_of(card: Card, seed: int = 0) -> Any:
    features = card.shape[0] if len(card.shape) == 1 else None
    generator = torch.Generator().manual_seed(seed)
    return build(card.net, card.num_classes, features, generator=generator, dropout=card.dropout)


@pytest.mark.parametrize("card", [FEATURES, IMAGES], ids=["features", "images"])
def test_the_same_logits_come_back(tmp_path: Path, card: Card) -> None:
    net = net_of(card).train()
    inputs = torch.randn(4, *card.shape, generator=torch.Generator().manual_seed(1))
    net(inputs)  # moves the statistics of batch norm
    best = net_of(card, seed=5)
    save_model(tmp_path / "model", net, card, best=best.state_dict())
    for which, expected in (("final", net), ("best", best)):
        loaded, again = load_model(tmp_path / "model", which)  # type: ignore[arg-type]  # a loop over a Literal
        assert again == card
        assert not loaded.training
        with torch.no_grad():
            assert torch.equal(loaded(inputs), expected.eval()(inputs))
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert names == {"model.json", "model.safetensors", "best.safetensors"}


def test_loading_leaves_the_global_randomness_alone(tmp_path: Path) -> None:
    save_model(tmp_path, net_of(FEATURES), FEATURES)
    before = torch.get_rng_state()
    load_model(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def test_saving_again_replaces_everything(tmp_path: Path) -> None:
    save_model(tmp_path, net_of(FEATURES), FEATURES, best=net_of(FEATURES).state_dict())
    save_model(tmp_path, net_of(FEATURES, seed=3), replace(FEATURES, metrics={}))
    assert not (tmp_path / "best.safetensors").exists()
    net, card = load_model(tmp_path)
    assert card.metrics == {}
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), net_of(FEATURES, seed=3).parameters(), strict=True))
    with pytest.raises(DataError, match="there is no best model in this folder, only final"):
        load_model(tmp_path, "best")


def test_a_flipped_bit_or_a_cut_is_recognised(tmp_path: Path) -> None:
    save_model(tmp_path, net_of(FEATURES), FEATURES)
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    for place in range(0, len(content), 97):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(DataError, match=r"model\.safetensors: damaged"):
            load_model(tmp_path)
        path.write_bytes(content[:place])
        with pytest.raises(DataError, match=r"model\.safetensors: damaged"):
            load_model(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match=r"model\.safetensors: cannot be read \(No such file"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format is 2; this version reads 1"),
        ({"net": "resnet65"}, "no net is named 'resnet65'"),
        ({"num_classes": 7}, "num_classes is 7, but there are 3 class_names"),
        ({"shape": None}, r"model\.json: "),
        ({"run": {"data": "x"}}, "a run needs 'net'"),
        ({"run": {"data": "x", "net": "y", "weighting": "CCE", "sed": 1}}, "did you mean 'seed'"),
        ({"normalisation": {"mean": [0.0], "std": [0.0]}}, "std must be positive"),
        ({"normalisation": {"mean": [0.0]}}, "'std' is missing"),
        ({"shape": [3]}, "of another shape"),
        ({"net": "mlp-5"}, "of another shape"),
        ({"net": "mlp-8-8"}, "bytes of parameters; expected at most"),
        ({"net": "mlp-1000000000"}, "bytes of parameters; expected at most"),
        ({"net": f"mlp-{10**18}"}, "is too large"),
        ({"shape": [10**12]}, "bytes of parameters; expected at most"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    save_model(tmp_path, net_of(FEATURES), FEATURES)
    content = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(content | change))
    with pytest.raises(DataError, match=message):
        load_model(tmp_path)


@pytest.mark.parametrize("missing", ["net", "class_names", "shape", "sha256", "run", "metrics"])
def test_missing_entries_are_named(tmp_path: Path, missing: str) -> None:
    save_model(tmp_path, net_of(FEATURES), FEATURES)
    content = json.loads((tmp_path / "model.json").read_text())
    del content[missing]
    (tmp_path / "model.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=f"'{missing}' is missing"):
        load_model(tmp_path)


def test_no_model_at_all(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"model\.json: cannot be read"):
        load_model(tmp_path)


def test_a_run_is_where_its_model_is(tmp_path: Path) -> None:
    save_model(tmp_path / "model", net_of(FEATURES), FEATURES)
    (tmp_path / "run.json").write_text("{}")
    assert load_model(tmp_path)[1] == load_model(tmp_path / "model")[1]


def test_a_folder_of_a_model_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    save_model(tmp_path / "elsewhere", net_of(FEATURES), FEATURES)
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "model").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="model: a symbolic link"):
        load_model(tmp_path)
    with pytest.raises(OSError, match="model is a symbolic link"):
        save_model(tmp_path / "model", net_of(FEATURES), FEATURES)
