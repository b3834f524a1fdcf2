"""skorch: a classifier that trains with a weighting, or with `Auto`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from skorch import NeuralNetClassifier
from torch import Tensor
from torch.nn.functional import cross_entropy

from reweigh.auto import Auto
from reweigh.criterion import Criterion
from reweigh.labels import Recorder
from reweigh.weightings import GCE

INPUT, INDEX = "input", "index"


class WeightedClassifier(NeuralNetClassifier):  # type: ignore[misc]
    """`skorch.NeuralNetClassifier` with a weighting; the module returns logits, and `predict_proba` their softmax.

    Labels are 0, 1, ... as in skorch. Rows of X and y are the examples' positions; validation rows are neither
    recorded nor seen by `Auto`.

    Args:
        module: a module or its class, as in skorch.
        weighting: w(p); or the class `Auto`, which every `fit` makes for its number of examples and classes
            (`functools.partial(Auto, tau=1.5)` has other settings). Then `net.criterion_.suspects()` are its findings.
        record: whether to record every training example; then `net.recorder_.suspects()` are the findings.
        others: as in skorch; `criterion__...` are settings of `Criterion`.

    >>> x, y = np.random.default_rng(0).normal(size=(30, 2)).astype("float32"), np.arange(30) % 3
    >>> net = WeightedClassifier(torch.nn.Linear(2, 3), GCE(0.7), max_epochs=1, verbose=0).fit(x, y)
    >>> net.predict_proba(x).sum(1).round(6).min()
    np.float32(1.0)
    """

    def __init__(self, module: Any, weighting: Any = GCE(0.7), *, record: bool = False, **others: Any) -> None:  # noqa: B008
        others.setdefault("predict_nonlinearity", functools.partial(torch.softmax, dim=-1))
        super().__init__(module, **{"criterion": Criterion, **others})
        self.weighting, self.record = weighting, record

    def initialize_criterion(self) -> WeightedClassifier:
        settings = self.get_params_for("criterion")
        if _makes_auto(self.weighting):
            self.criterion_ = self.weighting(*self._sizes)
        else:
            self.criterion_ = Criterion(self.weighting, **settings)
        if self.record:
            self.recorder_ = Recorder(self._sizes[0])
        return self

    def fit(self, X: Any, y: Any = None, **fit_params: Any) -> WeightedClassifier:
        self._measure(y)
        return super().fit(X, y, **fit_params)  # type: ignore[no-any-return]

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, **fit_params: Any) -> WeightedClassifier:
        if not self.initialized_:
            self._measure(y)
        if self._needs_index:
            rows = np.arange(len(y))
            X = {**X, INDEX: rows} if isinstance(X, Mapping) else {INPUT: X, INDEX: rows}
        return super().partial_fit(X, y, classes, **fit_params)  # type: ignore[no-any-return]

    def infer(self, x: Any, **fit_params: Any) -> Any:
        if isinstance(x, Mapping) and INDEX in x:
            x = {name: value for name, value in x.items() if name != INDEX}
            x = x[INPUT] if set(x) == {INPUT} else x
        return super().infer(x, **fit_params)

    def get_loss(self, y_pred: Tensor, y_true: Tensor, X: Any = None, training: bool = False) -> Tensor:
        if not (training and self._needs_index):
            if _makes_auto(self.weighting):
                return cross_entropy(y_pred, y_true.to(y_pred.device))
            return super().get_loss(y_pred, y_true, X=X, training=training)  # type: ignore[no-any-return]
        index, y_true = X[INDEX].to(y_pred.device), y_true.to(y_pred.device)
        if self.record:
            self.recorder_.update(index, y_pred.detach(), y_true)
        if _makes_auto(self.weighting):
            return self.criterion_(y_pred, y_true, index)  # type: ignore[no-any-return]
        return super().get_loss(y_pred, y_true, X=X, training=training)  # type: ignore[no-any-return]

    @property
    def _needs_index(self) -> bool:
        return self.record or _makes_auto(self.weighting)

    def _measure(self, y: Any) -> None:
        """Remember the number of examples and classes, which `Auto` and `Recorder` are made for."""
        if self._needs_index:
            if y is None:
                raise ValueError("y must be given with Auto or record=True, got None: the rows of y are the examples")
            self._sizes = len(y), int(np.max(y)) + 1


def _makes_auto(weighting: Any) -> bool:
    return (weighting.func if isinstance(weighting, functools.partial) else weighting) is Auto
