"""The two protocols: complete, and different exactly where the authors departed from their text."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from typing import Any

import pytest

from paper import presets
from paper.presets import authors, paper
from reweigh.lab.nets.registry import names
from reweigh.lab.spec import Run


def test_both_protocols_spell_out_every_field() -> None:
    names = {field.name for field in dataclasses.fields(Run)}
    tree = ast.parse(inspect.getsource(presets))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Run"]
    assert [{keyword.arg for keyword in call.keywords} for call in calls] == [names, names]


def test_protocols_differ_where_the_authors_did() -> None:
    said, ran = paper("cifar100", rate=0.4), authors("cifar100", rate=0.4)
    differing = {name for name in said.to_mapping() | ran.to_mapping() if getattr(said, name) != getattr(ran, name)}
    assert differing == {
        "net",
        "sampler",
        "augment",
        "inputs",
        "weight_decay",
        "caffe_momentum",
        "noise_count",
    }
    assert (said.weight_decay, ran.weight_decay) == (1e-4, 5e-4)
    assert (said.net, ran.net) == ("resnet44", "resnet44-projection")
    assert said.iterations == ran.iterations == 30_000
    assert said.batch_size == ran.batch_size == 256


@pytest.mark.parametrize(
    ("lam", "betas"), [(0, [2, 1, 1, 1]), (0.5, [6, 6, 8, 8]), (1, [6, 8, 8, 2]), (None, [6, 6, 8, 8])]
)
def test_betas_of_cifar100(lam: float | None, betas: list[float]) -> None:
    got = [authors(rate=rate, lam=lam).weighting for rate in (0, 0.2, 0.4, 0.6)]
    assert got == [f"DM({0.5 if lam is None else lam:g}, {beta})" for beta in betas]


@pytest.mark.parametrize("protocol", [paper, authors])
def test_protocols_of_the_other_data_sets(protocol: Any) -> None:
    imdb = protocol("imdb", rate=0.4)
    assert (imdb.weighting, imdb.batch_size, imdb.lr, imdb.weight_decay) == ("DM(0, -0.33)", 250, 0.01, 2e-3)
    assert imdb.schedule == "inv(gamma=1e-05, power=0.75)"
    assert imdb.sampler == "cyclic"
    clothing = protocol("clothing1m")
    assert (clothing.weighting, clothing.iterations, clothing.weight_decay) == ("DM(1, 2)", 20_000, 2e-5)
    mars = protocol("mars", weighting="CCE")
    assert (mars.batch_size, mars.schedule) == (180, "halving(every=10000)")
    assert protocol("cifar10", rate=0.8).weighting == "DM(0.5, 8)"
    assert protocol("cifar10", method="CoTeaching(forget_rate=0.4)").weighting is None
    with pytest.raises(ValueError, match="no beta was published for mars"):
        protocol("mars")
    with pytest.raises(ValueError, match="no beta was published for cifar100, rate"):
        protocol("cifar100", rate=0.3)
    with pytest.raises(ValueError, match="protocols exist for cifar100"):
        protocol("digits", weighting="CCE")


def test_the_nets_exist() -> None:
    for protocol in (paper, authors):
        for data in ("cifar100", "cifar10", "clothing1m", "mars", "imdb"):
            assert protocol(data, weighting="CCE").net in names()
