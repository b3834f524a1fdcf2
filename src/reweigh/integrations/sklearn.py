"""scikit-learn: a classifier that is robust to wrong labels, and one that corrects labels before it trains."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import cross_val_predict
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, has_fit_parameter, validate_data
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from reweigh.auto import Auto
from reweigh.criterion import Criterion
from reweigh.labels import Suspects, apply, find_suspects
from reweigh.weightings import GCE, Weighting


class RobustClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear model or a multi-layer perceptron on vectors, trained with `Auto` or a weighting.

    Features are standardised. After `fit` with `Auto`, `suspects()` ranks the labels of the training rows. Every batch
    counts by the sum of its sample weights, so that weights have the effect of repeated rows (exactly with one batch).

    Args:
        hidden: widths of the hidden layers; () makes a linear model.
        weighting: "auto" for `Auto`, or w(p), such as `GCE(0.7)`. `partial_fit`, whose rows have no position in a
            training set, uses `GCE(0.7)` instead of `Auto`.
        max_epochs, batch_size, learning_rate, momentum, weight_decay: of stochastic gradient descent; the learning
            rate falls to 0 along a cosine, except in `partial_fit`.
        early_stopping: whether to hold out `validation_fraction` of the rows, to stop after `patience` epochs without a
            higher accuracy on their (unverified) labels, and to return the best parameters.
        random_state: seed of the initial parameters, the order of the rows, and the hold-out.
        device: of torch.
        verbose: whether to print a line for every epoch.

    >>> x = np.random.default_rng(0).normal(size=(60, 2)); y = np.where(x[:, 0] > 0, "right", "left")
    >>> model = RobustClassifier(random_state=0).fit(x, y)
    >>> float(model.score(x, y)) > 0.9
    True
    """

    classes_: NDArray[Any]
    n_features_in_: int

    def __init__(
        self,
        hidden: tuple[int, ...] = (128,),
        *,
        weighting: Weighting | Literal["auto"] = "auto",
        max_epochs: int = 40,
        batch_size: int = 64,
        learning_rate: float = 0.03,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        random_state: Any = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.hidden = hidden
        self.weighting = weighting
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> RobustClassifier:
        """Train on rows X with labels y; rows of weight 0 are left out."""
        X, y = self._validated(X, y, reset=True)
        weight = _weights(sample_weight, len(X))
        if not weight.any():
            raise ValueError("sample_weight must not be zero for all rows")
        self.classes_, target = self._encoded(y[weight > 0], np.unique(y[weight > 0]))
        rows = np.flatnonzero(weight > 0)
        self._start(X[rows], weight[rows])
        criterion: Auto | Criterion
        if isinstance(self.weighting, str):
            criterion = Auto(len(rows), len(self.classes_)).to(self.device)
        else:
            criterion = Criterion(self.weighting)
        self.auto_ = criterion if isinstance(criterion, Auto) else None
        self.rows_ = rows
        x, t, s = self._tensors(X[rows], target, weight[rows])
        held = self._held_out(len(rows))
        keep = torch.from_numpy(np.setdiff1d(np.arange(len(rows)), held))
        steps = self.max_epochs * math.ceil(len(keep) / self.batch_size)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimiser_, steps)
        best, best_state, waited = -math.inf, None, 0
        self.loss_curve_: list[float] = []
        for epoch in range(1, self.max_epochs + 1):
            self.loss_curve_.append(self._epoch(criterion, x, t, s, keep, schedule))
            line = f"epoch {epoch}/{self.max_epochs}: loss {self.loss_curve_[-1]:.4f}"
            if len(held):
                score = float((self._logits(x[held]).argmax(1) == t[held]).double().mean())
                line += f", hold-out accuracy {score:.4f} (labels unverified)"
                if score > best:
                    best, best_state, waited = score, copy.deepcopy(self.net_.state_dict()), 0
                else:
                    waited += 1
            if self.verbose:
                noise = "" if self.auto_ is None else f", noise rate {self.auto_.noise_rate:.3f}"
                print(f"{line}{noise}", flush=True)
            if waited >= self.patience:
                break
        if best_state is not None:
            self.net_.load_state_dict(best_state)
        self.n_iter_ = len(self.loss_curve_)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> RobustClassifier:
        """Train for one epoch on these rows.

        Args:
            classes: all labels, needed at the first call.
        """
        is_first = not hasattr(self, "net_")
        X, y = self._validated(X, y, reset=is_first)
        weight = _weights(sample_weight, len(X))
        if is_first:
            if classes is None:
                raise ValueError("classes must be given at the first call of partial_fit")
            self.classes_ = np.unique(classes)
        _, target = self._encoded(y, self.classes_)
        if is_first:
            self._start(X, weight)
            self.auto_, self.loss_curve_, self.n_iter_ = None, [], 0
        if not weight.any():
            return self
        criterion = Criterion(GCE(0.7) if isinstance(self.weighting, str) else self.weighting)
        self.loss_curve_.append(
            self._epoch(criterion, *self._tensors(X, target, weight), torch.from_numpy(np.flatnonzero(weight > 0)))
        )
        self.n_iter_ += 1
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return (N, C) probabilities, in the order of `classes_`."""
        check_is_fitted(self, "net_")
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return self._logits(self._scaled(X)).double().softmax(1).cpu().numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of each row."""
        check_is_fitted(self, "net_")
        return self.classes_[self.predict_proba(X).argmax(1)]  # type: ignore[no-any-return]

    def suspects(self) -> Suspects:
        """Rank the labels of the training rows by how likely they are wrong; needs `fit` with `weighting="auto"`."""
        check_is_fitted(self, "net_")
        if self.auto_ is None:
            raise ValueError("suspects need fit with weighting='auto'; LabelCleaner finds them with any classifier")
        found = self.auto_.suspects()
        rows = self.rows_[found.index]
        names = tuple(str(each) for each in self.classes_)
        return replace(found, index=rows, sources=tuple(map(str, rows)), class_names=names)

    def _validated(self, X: Any, y: Any, *, reset: bool) -> tuple[NDArray[Any], NDArray[Any]]:
        X, y = validate_data(self, X, y, reset=reset, dtype=np.float64)
        check_classification_targets(y)
        return X, y

    def _encoded(self, y: NDArray[Any], classes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        if len(classes) < 2:
            raise ValueError(f"a classifier needs two classes, got {len(classes)} class")
        target = np.searchsorted(classes, y).clip(0, len(classes) - 1)
        if (unknown := classes[target] != y).any():
            raise ValueError(f"y contains {str(y[unknown][0])!r}, which is not in classes")
        return classes, target

    def _start(self, X: NDArray[Any], weight: NDArray[Any]) -> None:
        """Set scales, parameters and the optimiser to their initial values."""
        share = weight / weight.sum() if weight.any() else np.full(len(X), 1 / len(X))
        self.mean_ = share @ X
        spread = np.sqrt(share @ (X - self.mean_) ** 2)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self.generator_ = torch.Generator().manual_seed(seed)
        widths = [X.shape[1], *self.hidden, len(self.classes_)]
        layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
        for layer in layers:
            bound = layer.in_features**-0.5
            nn.init.uniform_(layer.weight, -bound, bound, self.generator_)
            nn.init.zeros_(layer.bias)
        parts = [part for layer in layers for part in (layer, nn.ReLU())][:-1]
        self.net_ = nn.Sequential(*parts).to(self.device)
        self.optimiser_ = torch.optim.SGD(
            self.net_.parameters(), lr=self.learning_rate, momentum=self.momentum, weight_decay=self.weight_decay
        )

    def _held_out(self, n: int) -> NDArray[np.int64]:
        if not self.early_stopping:
            return np.zeros(0, np.int64)
        size = max(1, round(self.validation_fraction * n))
        if not 0 < size < n:
            raise ValueError(f"validation_fraction must leave rows to train on, got {self.validation_fraction}")
        return torch.randperm(n, generator=self.generator_)[:size].numpy()

    def _epoch(
        self, criterion: Auto | Criterion, x: Tensor, t: Tensor, s: Tensor, rows: Tensor, schedule: Any = None
    ) -> float:
        """Train once on all rows; return the mean cross entropy. s has a mean of 1 over the training set."""
        total, mass = 0.0, 0.0
        order = rows[torch.randperm(len(rows), generator=self.generator_)]
        self.net_.train()
        for batch in torch.split(order, self.batch_size):
            logits, y, weight = self.net_(x[batch]), t[batch], s[batch]
            if isinstance(criterion, Auto):
                loss = criterion(logits, y, batch.to(self.device), sample_weight=weight)
            else:
                loss = criterion(logits, y, sample_weight=weight)
            self.optimiser_.zero_grad()
            (loss * weight.mean()).backward()
            self.optimiser_.step()
            if schedule is not None:
                schedule.step()
            total += float((weight * cross_entropy(logits.detach(), y, reduction="none")).sum())
            mass += float(weight.sum())
        return total / mass

    def _tensors(self, X: NDArray[Any], target: NDArray[Any], weight: NDArray[Any]) -> tuple[Tensor, Tensor, Tensor]:
        relative = torch.tensor(weight / weight[weight > 0].mean(), dtype=torch.float32, device=self.device)
        return self._scaled(X), torch.tensor(target, device=self.device), relative

    def _scaled(self, X: NDArray[Any]) -> Tensor:
        return torch.tensor((X - self.mean_) / self.scale_, dtype=torch.float32, device=self.device)

    @torch.no_grad()
    def _logits(self, x: Tensor) -> Tensor:
        self.net_.eval()
        return self.net_(x)  # type: ignore[no-any-return]


def _weights(sample_weight: Any, n: int) -> NDArray[np.float64]:
    if sample_weight is None:
        return np.ones(n)
    weight: NDArray[np.float64] = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, ensure_non_negative=True, input_name="sample_weight"
    )
    if weight.shape != (n,):
        raise ValueError(f"sample_weight must have shape ({n},), got {weight.shape}")
    return weight


class LabelCleaner(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Find wrong labels, correct or drop them, and train a classifier on the rest.

    A suspect is corrected if another class has at least the probability `sure`, and its row is dropped otherwise.

    Args:
        estimator: a classifier with `predict_proba`; `RobustClassifier()` by default. A `RobustClassifier` with `Auto`
            finds suspects in one training, any other classifier in `cv` trainings of a cross-validation.
        cv: folds, as in `cross_val_predict`; None uses one training where that is possible and five folds elsewhere.
        sure: see above.

    Attributes:
        suspects_: the `Suspects` of all labels.
        labels_: (N,) the corrected labels.
        keep_: (N,) bool, False for rows that were dropped.
        estimator_: the classifier, trained on `labels_[keep_]`.

    >>> x = np.random.default_rng(0).normal(size=(90, 2)); y = (x[:, 0] > 0).astype(int)
    >>> cleaner = LabelCleaner(RobustClassifier(random_state=0)).fit(x, y)
    >>> cleaner.labels_.shape, cleaner.predict(x).shape
    ((90,), (90,))
    """

    def __init__(self, estimator: Any = None, *, cv: Any = None, sure: float = 0.9) -> None:
        self.estimator = estimator
        self.cv = cv
        self.sure = sure

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LabelCleaner:
        """Find suspects in y, and train on the corrected labels."""
        estimator = RobustClassifier() if self.estimator is None else self.estimator
        validate_data(self, X, skip_check_array=True)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, target = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"a classifier needs two classes, got {len(self.classes_)} class")
        weight = {} if sample_weight is None else {"sample_weight": _weights(sample_weight, len(y))}
        if weight and not has_fit_parameter(estimator, "sample_weight"):
            raise ValueError(f"sample_weight does not go with {type(estimator).__name__}, whose fit does not take it")
        if weight and not weight["sample_weight"].any():
            raise ValueError("sample_weight must not be zero for all rows")
        one_training = isinstance(estimator, RobustClassifier) and isinstance(estimator.weighting, str)
        if one_training and self.cv is None and not estimator.early_stopping:
            self.suspects_ = clone(estimator).fit(X, y, **weight).suspects()
        else:
            folds = 5 if self.cv is None else self.cv
            found = cross_val_predict(estimator, X, y, cv=folds, method="predict_proba", params=weight)
            self.suspects_ = find_suspects(target, found, class_names=[str(each) for each in self.classes_])
        applied = apply(target, self.suspects_, sure=self.sure)
        self.labels_, self.keep_ = self.classes_[applied.labels], applied.keep
        rows = np.flatnonzero(self.keep_)
        if len(np.unique(self.labels_[rows])) < 2:
            raise ValueError(f"fewer than two classes are left after {len(y) - len(rows)} rows were dropped")
        kept = X.iloc[rows] if hasattr(X, "iloc") else np.asarray(X)[rows]
        weight = {name: values[rows] for name, values in weight.items()}
        self.estimator_ = clone(estimator).fit(kept, self.labels_[rows], **weight)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return (N, C) probabilities, in the order of `classes_`; 0 for a class that no kept row has."""
        check_is_fitted(self, "estimator_")
        found = self.estimator_.predict_proba(X)
        every = np.zeros((len(found), len(self.classes_)))
        every[:, np.searchsorted(self.classes_, self.estimator_.classes_)] = found
        return every

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label that the trained classifier gives each row."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict(X)  # type: ignore[no-any-return]
