"""Rank labels by how likely they are wrong, from the labels and a model's predictions.

suspects = find_suspects(labels, pred_probs)     # the arguments of cleanlab's find_label_issues
suspects.issue                                   # (N,) bool, as it returns
suspects.ranked_issues()                         # row numbers, as with return_indices_ranked_by="self_confidence"
suspects.label_quality                           # what get_label_quality_scores returns

Issues are chosen class by class, much as with cleanlab's filter_by="prune_by_class". Its default,
"prune_by_noise_rate", chooses some other examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reweigh.labels.noise import NoiseEstimate, confident_classes, estimate_noise, joint_of
from reweigh.labels.scores import area_under_margin, final_p, margin_score, mean_p, mean_pairwise_p, mixture

Method: TypeAlias = Literal["auto", "final-p", "mean-p", "duel", "aum", "mixture"]
METHODS: tuple[Method, ...] = get_args(Method)

Floats: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Suspects:
    """N training examples and the suspicion of their labels; all arrays are (N,) and in the same order.

    Attributes:
        index: int64, row in the training set.
        given, suggested: int64 class ids; equal where the model agrees with the label.
        score: float64 in [0, 1]; higher is more suspicious.
        issue: bool, whether the label is classified as wrong.
        p_given, p_suggested: float64, the model's probability of each class.
        class_names: class id -> name.
        sources: N names of examples: files, lines of a table, excerpts of texts, or row numbers.
        description: how the scores were computed.
        noise: the estimated noise; None after reading a file, which does not contain it.
    """

    index: Labels
    given: Labels
    suggested: Labels
    score: Floats
    issue: NDArray[np.bool_]
    p_given: Floats
    p_suggested: Floats
    class_names: tuple[str, ...]
    sources: tuple[str, ...]
    description: str
    noise: NoiseEstimate | None

    def __post_init__(self) -> None:
        for name in ("index", "given", "suggested", "score", "issue", "p_given", "p_suggested", "sources"):
            if len(getattr(self, name)) != len(self.index):
                raise ValueError(f"{name} has {len(getattr(self, name))} entries; index has {len(self.index)}")

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"Suspects({len(self)} examples, {int(self.issue.sum())} issues, {self.description!r})"

    def ranked(self) -> Labels:
        """Return the (N,) positions in these arrays, most suspicious first; ties are ordered by index."""
        return np.lexsort((self.index, -self.score))

    def ranked_issues(self) -> Labels:
        """Return `ranked()` without the examples that are no issue."""
        order = self.ranked()
        return order[self.issue[order]]

    @property
    def label_quality(self) -> Floats:
        """(N,) 1 - score: cleanlab's label quality."""
        return 1.0 - self.score

    def take(self, positions: Labels) -> Suspects:
        """Return the examples at these positions, in that order."""
        arrays = {f.name: getattr(self, f.name)[positions] for f in fields(self)[:7]}
        sources = tuple(self.sources[i] for i in positions.tolist())
        return Suspects(
            **arrays, class_names=self.class_names, sources=sources, description=self.description, noise=self.noise
        )


def find_suspects(
    labels: ArrayLike,
    pred_probs: ArrayLike,
    *,
    history: ArrayLike | None = None,
    margins: ArrayLike | None = None,
    rivals: ArrayLike | None = None,
    threshold: float | None = None,
    method: Method = "auto",
    class_names: Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
    description: str | None = None,
    seed: int = 0,
    bootstrap: int = 100,
) -> Suspects:
    """Rank labels by suspicion, classify some of them as wrong, and estimate the noise rate.

    method      score                                                                  needs
    final-p     1 - p of the given label                                               pred_probs
    mean-p      1 - its mean over training                                             history
    duel        1 - its mean pairwise probability against the strongest other class    margins, rivals
    aum         area under the margin                                                  margins
    mixture     posterior of the noisy one of two Beta components, fitted to the
                first available of duel, mean-p and final-p

    "auto" is the first available of duel, mean-p and final-p.

    The suggested label is the most probable class: by `mean_pairwise_p` if rivals are passed and the method is not
    final-p, else by `pred_probs`. The noise is estimated from the same probabilities. Only examples whose suggested
    label differs from the given one can be issues: with aum and a threshold, those below it; with mixture, those with
    a posterior above 1/2; otherwise the most suspicious of each class, as many as are estimated to be wrong in that
    class. A rare class is therefore not compared with frequent ones.

    Args:
        labels: (N,) given class ids.
        pred_probs: (N, C) probabilities, out of fold or from a model that resists label noise.
        history: (N, E), p of the given label at E evaluations (`reweigh.lab.record.read_p`).
        margins: (N, E), logit of the given label minus the largest other logit (`reweigh.lab.record.read_margins`).
        rivals: (N, E), the class of that other logit.
        threshold: area under the margin below which a label is wrong, found by threshold samples; only for aum.
        method: see above.
        class_names: class id -> name; numbers by default.
        sources: names of the examples; row numbers by default.
        description: how the scores were computed, for the table; the method's name by default.
        seed, bootstrap: seed and number of the resamples behind the noise estimate's intervals.

    >>> labels = np.array([0, 0, 0, 1, 1, 1, 1, 1])
    >>> truth = np.array([0, 0, 0, 1, 1, 1, 1, 0])
    >>> suspects = find_suspects(labels, np.where(np.arange(2) == truth[:, None], 0.9, 0.1))
    >>> np.flatnonzero(suspects.issue), int(suspects.suggested[7]), suspects.noise.rate
    (array([7]), 0, 0.125)
    """
    given, probabilities = _check_labels(labels, pred_probs)
    n, num_classes = probabilities.shape
    p_history = None if history is None else _check_history("history", history, n)
    margin_history = None if margins is None else _check_history("margins", margins, n)
    pairwise = None
    if rivals is not None:
        if margin_history is None:
            raise ValueError("rivals needs margins; pass both")
        strongest = _check_rivals(rivals, margin_history.shape, num_classes)
        pairwise = mean_pairwise_p(given, margin_history, strongest, num_classes)
    method = choose_method(
        method, history=p_history is not None, margins=margins is not None, rivals=rivals is not None
    )
    if threshold is not None and method != "aum":
        raise ValueError(f"threshold is {threshold:g}, but method is {method!r}; only 'aum' uses a threshold")
    if method != "final-p" and pairwise is not None:
        probabilities = pairwise

    score = final_p(given, probabilities)  # the score of final-p and duel
    if p_history is not None and (method == "mean-p" or (method == "mixture" and pairwise is None)):
        score = mean_p(p_history)
    if method == "mixture":
        score = mixture(score)
    if method == "aum" and margin_history is not None:
        score = margin_score(area_under_margin(margin_history), threshold or 0.0)

    rows = np.arange(n)
    agrees = probabilities[rows, given] >= probabilities.max(axis=1)  # a tie is no disagreement
    suggested = np.where(agrees, given, probabilities.argmax(axis=1))
    if method == "mixture" or threshold is not None:
        issue = (score > 0.5) & (suggested != given)
    else:
        issue = _most_suspicious(given, suggested, score, probabilities)
    return Suspects(
        index=rows,
        given=given,
        suggested=suggested,
        score=score,
        issue=issue,
        p_given=probabilities[rows, given],
        p_suggested=probabilities[rows, suggested],
        class_names=_names("class_names", class_names, num_classes, "classes"),
        sources=_names("sources", sources, n, "examples"),
        description=description or method,
        noise=estimate_noise(given, probabilities, seed=seed, bootstrap=bootstrap),
    )


def choose_method(method: str, *, history: bool, margins: bool, rivals: bool) -> Method:
    """Resolve "auto" to the best method that the available arrays allow, and check any other.

    Raises:
        ValueError: the method is unknown, or its arrays are not available.

    >>> choose_method("auto", history=True, margins=False, rivals=False)
    'mean-p'
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; expected one of {', '.join(METHODS)}")
    if method == "auto":
        return "duel" if rivals else "mean-p" if history else "final-p"
    needs = {"mean-p": ("history", history), "aum": ("margins", margins), "duel": ("rivals", rivals)}
    name, is_available = needs.get(method, ("", True))
    if not is_available:
        raise ValueError(f"method {method!r} needs {name}")
    return method


def _most_suspicious(given: Labels, suggested: Labels, score: Floats, probabilities: Floats) -> NDArray[np.bool_]:
    """Mark, in each class, as many of the labels that the model disagrees with as are estimated to be wrong."""
    num_classes = probabilities.shape[1]
    joint = joint_of(given, confident_classes(given, probabilities), num_classes)
    wrong = np.rint((joint.sum(axis=1) - joint.diagonal()) * len(given)).astype(np.int64)
    issue = np.zeros(len(given), bool)
    for label in np.flatnonzero(wrong):
        candidates = np.flatnonzero((given == label) & (suggested != given))
        issue[candidates[np.argsort(-score[candidates], kind="stable")[: wrong[label]]]] = True
    return issue


def _check_labels(labels: ArrayLike, pred_probs: ArrayLike) -> tuple[Labels, Floats]:
    """Return both as arrays of int64 and float64; ValueError if either is invalid."""
    given, probabilities = np.asarray(labels), np.asarray(pred_probs)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise ValueError(f"labels must be (N,) integers, not {given.shape} of {given.dtype}")
    if probabilities.ndim != 2 or probabilities.dtype.kind != "f" or probabilities.shape[1] < 2:
        raise ValueError(f"pred_probs must be (N, C) floats, not {probabilities.shape} of {probabilities.dtype}")
    if len(given) != len(probabilities) or not len(given):
        sizes = f"labels has {len(given)} entries and pred_probs {len(probabilities)} rows"
        raise ValueError(f"{sizes}; expected the same number, 1 or more")
    probabilities = probabilities.astype(np.float64)
    num_classes = probabilities.shape[1]
    _check_rows("labels", f"from 0 to {num_classes - 1}", (given < 0) | (given >= num_classes))
    inside = (probabilities >= 0) & (probabilities <= 1 + 1e-6)  # False for NaN, too
    _check_rows("pred_probs", "between 0 and 1", ~inside.all(axis=1))
    _check_rows("pred_probs", "rows that sum to 1", np.abs(probabilities.sum(axis=1) - 1) > 1e-2)
    return given.astype(np.int64), np.minimum(probabilities, 1.0)


def _check_history(name: str, values: ArrayLike, n: int) -> Floats:
    array = np.asarray(values)
    if array.ndim != 2 or len(array) != n or not array.shape[1] or array.dtype.kind != "f":
        raise ValueError(f"{name} must be ({n}, E) floats for E evaluations, not {array.shape} of {array.dtype}")
    _check_rows(name, "numbers", np.isnan(array).any(axis=1))
    if name == "history":
        _check_rows(name, "between 0 and 1", ((array < 0) | (array > 1)).any(axis=1))
    return array.astype(np.float64)


def _check_rivals(values: ArrayLike, shape: tuple[int, ...], num_classes: int) -> NDArray[Any]:
    array = np.asarray(values)
    if array.shape != shape or array.dtype.kind not in "iu":
        raise ValueError(f"rivals must be {shape} integers, the shape of margins, not {array.shape} of {array.dtype}")
    _check_rows("rivals", f"from 0 to {num_classes - 1}", ((array < 0) | (array >= num_classes)).any(axis=1))
    return array


def _check_rows(name: str, expected: str, invalid: NDArray[np.bool_] | np.bool_) -> None:
    if invalid.any():
        row, count = int(invalid.argmax()), int(invalid.sum())
        raise ValueError(f"{name} must be {expected}; row {row} is not ({count} such rows)")


def _names(name: str, values: Sequence[str] | None, count: int, kind: str) -> tuple[str, ...]:
    if values is None:
        return tuple(map(str, range(count)))
    if len(values) != count:
        raise ValueError(f"{name} has {len(values)} entries for {count} {kind}")
    return tuple(values)
