"""skorch: probabilities, grid search, pickling, and where the index of an example comes from."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

pytest.importorskip("skorch")

from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from reweigh import CCE, DM, GCE, Auto, Criterion
from reweigh.integrations.skorch import WeightedClassifier


def blobs(n: int = 240, wrong: float = 0.3) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return three Gaussians, with noisy and clean labels."""
    rng = np.random.default_rng(0)
    clean = np.arange(n) % 3
    x = (3 * np.eye(3)[clean] + rng.normal(size=(n, 3))).astype("float32")
    return x, np.where(rng.random(n) < wrong, (clean + 1) % 3, clean), clean


class Net(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.layers(input)  # type: ignore[no-any-return]


def made(weighting: Any, **settings: Any) -> Any:
    torch.manual_seed(0)
    fixed = {"max_epochs": 15, "lr": 0.1, "batch_size": 40, "verbose": 0, "iterator_train__shuffle": True}
    return WeightedClassifier(Net, weighting, **{**fixed, **settings})


@pytest.mark.parametrize("weighting", [CCE(), GCE(0.7), DM(0.5, 8), Auto], ids=repr)
def test_probabilities_sum_to_one(weighting: Any) -> None:
    x, noisy, clean = blobs()
    net = made(weighting).fit(x, noisy)
    rows = net.predict_proba(x)
    np.testing.assert_allclose(rows.sum(1), 1, rtol=1e-5)
    assert rows.min() >= 0
    assert (net.predict(x) == clean).mean() > 0.85


def test_it_trains_as_skorch_does_with_a_criterion() -> None:
    from skorch import NeuralNetClassifier

    x, noisy, _ = blobs()
    torch.manual_seed(0)
    plain = NeuralNetClassifier(
        Net, criterion=Criterion, criterion__weighting=GCE(0.7), max_epochs=3, lr=0.1, batch_size=40, verbose=0
    ).fit(x, noisy)
    ours = made(GCE(0.7), max_epochs=3, iterator_train__shuffle=False).fit(x, noisy)
    np.testing.assert_allclose(ours.predict_proba(x), plain.predict_proba(x), rtol=1e-5)
    assert made(CCE(), criterion__label_smoothing=0.2).initialize().criterion_.label_smoothing == 0.2


def test_grid_search_and_clone() -> None:
    x, noisy, _ = blobs(120)
    search = GridSearchCV(
        made(CCE(), max_epochs=2, train_split=None),
        {"weighting": [CCE(), GCE(0.5), functools.partial(Auto, tau=1.5)], "module__width": [4]},
        cv=2,
    ).fit(x, noisy)
    assert len(search.cv_results_["params"]) == 3
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert clone(made(GCE(0.5))).get_params()["weighting"] == GCE(0.5)


@pytest.mark.parametrize("weighting", [GCE(0.7), Auto], ids=repr)
def test_pickling(weighting: Any) -> None:
    x, noisy, _ = blobs(60)
    net = made(weighting, max_epochs=1).fit(x, noisy)
    again = pickle.loads(pickle.dumps(net))
    np.testing.assert_array_equal(again.predict_proba(x), net.predict_proba(x))


def test_auto_and_recorder_get_the_row_of_every_training_example() -> None:
    x, noisy, clean = blobs()
    net = made(Auto, record=True).fit(x, noisy)
    seen = net.criterion_.visits.numpy() > 0
    assert seen.sum() == 192  # skorch holds a fifth out
    np.testing.assert_array_equal(net.criterion_.labels.numpy()[seen], noisy[seen])
    found = net.criterion_.suspects()
    worst = found.index[np.argsort(-found.score)][:40]
    assert (noisy != clean)[worst].mean() > 0.8
    with pytest.warns(UserWarning, match="48 of 240 examples were never recorded"):
        assert set(net.recorder_.suspects(bootstrap=1).index) == set(np.flatnonzero(seen))
    with pytest.raises(ValueError, match="y must be given with Auto"):
        made(Auto).fit(x)


def test_a_mapping_as_x() -> None:
    x, noisy, clean = blobs()
    net = made(Auto).fit({"input": x}, noisy)
    assert (net.predict({"input": x}) == clean).mean() > 0.85
