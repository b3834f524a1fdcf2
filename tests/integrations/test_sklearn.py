"""scikit-learn: its own checks, sample weights, tables with names, and what the two classifiers find."""

from __future__ import annotations

import io
import pickle
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("sklearn", minversion="1.6")

import pandas as pd
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from reweigh import CCE, GCE
from reweigh.integrations.sklearn import LabelCleaner, RobustClassifier

# Rows of weight 2 are not two rows: minibatches differ, and Auto has one opinion per row. With one batch and a
# weighting they are, see test_weights_are_repetitions.
DECLARED = {"check_sample_weight_equivalence_on_dense_data": "minibatches"}
ESTIMATORS = [RobustClassifier(max_epochs=20), LabelCleaner(RobustClassifier(max_epochs=10, random_state=0))]
CHECKS = [pair for each in ESTIMATORS for pair in estimator_checks_generator(each, mark=None)]


@pytest.mark.filterwarnings("ignore")  # of the checks' own data
@pytest.mark.parametrize(
    ("estimator", "check"), CHECKS, ids=lambda x: type(x).__name__ if hasattr(x, "fit") else x.func.__name__
)
def test_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    if check.func.__name__ in DECLARED:
        with pytest.raises(AssertionError):
            check(estimator)
        return
    try:
        check(estimator)
    except AssertionError:
        raise
    except Exception as error:
        if type(error).__name__ != "SkipTest":
            raise


def digits(rate: float = 0.4) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return training rows, their noisy and clean labels, and test rows with clean labels."""
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x, y, test_size=500, random_state=0)
    rng = np.random.default_rng(0)
    noisy = np.where(rng.random(len(y)) < rate, (y + 1) % 10, y)
    return x, noisy, y, x_test, y_test


@pytest.fixture(scope="module")
def fitted() -> Any:
    x, noisy, clean, x_test, y_test = digits(0.35)
    return RobustClassifier(random_state=0).fit(x, noisy), x, noisy, clean, x_test, y_test


def test_auto_resists_wrong_labels_and_finds_them(fitted: Any) -> None:
    model, x, noisy, clean, x_test, y_test = fitted
    plain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)).fit(x, noisy)
    assert model.score(x_test, y_test) > plain.score(x_test, y_test) + 0.2
    found = model.suspects()
    assert found.index.tolist() == list(range(len(x)))
    wrong = (noisy != clean)[found.ranked()]
    assert wrong[: wrong.sum()].mean() > 0.9
    np.testing.assert_allclose(model.predict_proba(x_test).sum(1), 1)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(x_test), model.predict_proba(x_test))


def test_the_seed_decides(fitted: Any) -> None:
    _, x, noisy, *_ = fitted
    models = [RobustClassifier(random_state=seed, max_epochs=2).fit(x, noisy) for seed in (0, 0, 1)]
    rows = [model.predict_proba(x[:20]) for model in models]
    np.testing.assert_array_equal(rows[0], rows[1])
    assert not np.allclose(rows[0], rows[2])


def test_weights_are_repetitions() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    y = (x[:, 0] + rng.normal(size=40) > 0).astype(int)
    weight = rng.integers(0, 4, 40)
    settings: dict[str, Any] = {"weighting": GCE(0.7), "batch_size": 1000, "max_epochs": 15, "random_state": 0}
    weighted = RobustClassifier(**settings).fit(x, y, sample_weight=weight)
    repeated = RobustClassifier(**settings).fit(np.repeat(x, weight, 0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.predict_proba(x), repeated.predict_proba(x), rtol=1e-3)


def test_the_expected_step_of_a_minibatch_is_that_of_all_rows() -> None:
    """A batch counts by its weights: a mean over each batch would train too much on rows of little weight."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 1))
    y = np.arange(100) % 2
    weight = np.where(y == 1, 9.0, 1.0)  # so p(1) = 0.9, whatever the batch size
    settings: dict[str, Any] = {"hidden": (), "weighting": CCE(), "random_state": 0, "weight_decay": 0.0}
    settings |= {"learning_rate": 0.05}
    for size, epochs in ((4, 30), (100, 150)):
        model = RobustClassifier(**{**settings, "batch_size": size, "max_epochs": epochs})
        rate = model.fit(x, y, sample_weight=weight).predict_proba(np.zeros((1, 1)))[0, 1]
        assert rate == pytest.approx(0.9, abs=0.05), size


def test_tables_with_names_and_strings() -> None:
    x, noisy, _, x_test, y_test = digits(0.2)
    names = np.array([f"digit {i}" for i in range(10)], dtype=object)
    table = pd.DataFrame(x, columns=[f"pixel {i}" for i in range(x.shape[1])])
    model = RobustClassifier(random_state=0, max_epochs=10).fit(table, pd.Series(names[noisy]))
    assert list(model.feature_names_in_) == list(table.columns)
    assert (model.predict(pd.DataFrame(x_test, columns=table.columns)) == names[y_test]).mean() > 0.85
    assert model.suspects().class_names == tuple(names)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table.rename(columns={"pixel 0": "other"}))


def test_early_stopping_progress_and_partial_fit() -> None:
    x, noisy, _, x_test, y_test = digits(0.2)
    printed = io.StringIO()
    with redirect_stdout(printed):
        model = RobustClassifier(early_stopping=True, patience=2, random_state=0, verbose=True).fit(x, noisy)
    lines = printed.getvalue().splitlines()
    assert len(lines) == model.n_iter_ < 40
    assert "hold-out accuracy" in lines[0]
    assert "noise rate" in lines[0]
    assert len(model.suspects()) == len(x) - round(0.1 * len(x))  # held-out rows have no opinion

    online = RobustClassifier(random_state=0)
    with pytest.raises(ValueError, match="classes must be given at the first call"):
        online.partial_fit(x, noisy)
    for _ in range(8):
        for part in np.array_split(np.arange(len(x)), 4):
            online.partial_fit(x[part], noisy[part], classes=range(10))
    assert online.score(x_test, y_test) > 0.85
    with pytest.raises(ValueError, match="suspects need fit with weighting='auto'"):
        online.suspects()
    with pytest.raises(ValueError, match="y contains '10', which is not in classes"):
        online.partial_fit(x[:2], [3, 10])


def test_grid_search() -> None:
    x, noisy, *_ = digits()
    grid = {"weighting": ["auto", GCE(0.7)], "hidden": [(), (8,)]}
    search = GridSearchCV(RobustClassifier(max_epochs=2, random_state=0), grid, cv=2).fit(x[:200], noisy[:200])
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("kind", ["one training", "folds"])
def test_a_cleaner_corrects_labels(kind: str) -> None:
    x, noisy, clean, x_test, y_test = digits(0.2)
    estimator = RobustClassifier(random_state=0) if kind == "one training" else LogisticRegression(max_iter=200)
    pipeline = make_pipeline(StandardScaler(), LabelCleaner(estimator)).fit(x, noisy)
    cleaner = pipeline[-1]
    assert len(cleaner.suspects_) == len(x)
    before, after = (noisy != clean).mean(), (cleaner.labels_ != clean)[cleaner.keep_].mean()
    assert after < before / 2
    plain = make_pipeline(StandardScaler(), clone(estimator)).fit(x, noisy)
    assert pipeline.score(x_test, y_test) >= plain.score(x_test, y_test) - 0.02
    np.testing.assert_allclose(pipeline.predict_proba(x_test).sum(1), 1)


def test_a_cleaner_keeps_tables_and_strings() -> None:
    x, noisy, *_ = digits(0.2)
    table = pd.DataFrame(x[:400], columns=[f"pixel {i}" for i in range(x.shape[1])])
    labels = pd.Series([f"digit {i}" for i in noisy[:400]], index=range(1000, 1400))
    cleaner = LabelCleaner(RobustClassifier(random_state=0, max_epochs=10)).fit(table, labels)
    assert set(cleaner.labels_) <= set(labels)
    assert list(cleaner.estimator_.feature_names_in_) == list(table.columns)
    assert set(cleaner.predict(table)) <= set(labels)
