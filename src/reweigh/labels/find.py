"""find_suspects: from labels and what a model made of them to a ranked list, without any file or run.

found = find_suspects(labels, pred_probs)        # what cleanlab's find_label_issues takes
found.issue                                      # (N,) bool, as it returns
found.ranked_issues()                            # their positions, as with return_indices_ranked_by="self_confidence"
found.label_quality                              # what get_label_quality_scores returns

Which labels are called wrong is decided class by class, much as with cleanlab's filter_by="prune_by_class"; its own
default, "prune_by_noise_rate", calls some others wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reweigh.labels.noise import confident_classes, estimate_noise, joint_of
from reweigh.labels.scores import area_under_margin, final_p, margin_score, mean_duel, mean_p, mixture
from reweigh.labels.suspects import Suspects

Method: TypeAlias = Literal["auto", "final-p", "mean-p", "duel", "aum", "mixture"]
METHODS: tuple[Method, ...] = get_args(Method)

Numbers = NDArray[np.float64]


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
    how: str | None = None,
    seed: int = 0,
    bootstrap: int = 100,
) -> Suspects:
    """Rank labels by how suspicious they are, call some of them wrong, and estimate how many are.

    method      score                                                                needs
    final-p     1 - p of the given label                                             pred_probs
    mean-p      1 - its mean over training                                           history
    duel        1 - the mean over training of its share against the strongest rival  margins, rivals
    aum         area under the margin                                                margins
    mixture     posterior of the worse of two Beta components of duel, mean-p or final-p, the first that there is

    "auto" is duel, mean-p or final-p, the first that can be had.

    The suggested label is the most probable class: by `mean_duel` where rivals are given (but for final-p), else by
    `pred_probs`; the noise is estimated from the same. Called an issue are, of the examples whose suggested label is
    another: with aum and a threshold, those below it; with mixture, those with a posterior above 1/2; else, in every
    class, the most suspicious, as many as the estimate says are wrong in that class: so a rare class is judged by its
    own measure.

    Args:
        labels: (N,) given class ids.
        pred_probs: (N, C) probabilities, out of fold or of a model that resists noise.
        history: (N, E), p of the given label at E evaluations (`reweigh.lab.record.read_p`).
        margins: (N, E), logit of the given label less the largest other (`reweigh.lab.record.read_margins`).
        rivals: (N, E), the class of that other.
        threshold: area under the margin below which a label is wrong, as threshold samples tell; only for aum.
        method: see above.
        class_names: class id -> name; numbers if not given.
        sources: names of the examples; row numbers if not given.
        how: the method in words, for the table.
        seed, bootstrap: of the noise estimate's intervals.

    >>> labels = np.array([0, 0, 0, 1, 1, 1, 1, 1])
    >>> truth = np.array([0, 0, 0, 1, 1, 1, 1, 0])
    >>> found = find_suspects(labels, np.where(np.arange(2) == truth[:, None], 0.9, 0.1))
    >>> np.flatnonzero(found.issue), int(found.suggested[7]), found.noise.rate
    (array([7]), 0, 0.125)
    """
    given, probabilities = check_labels(labels, pred_probs)
    n, num_classes = probabilities.shape
    past = None if history is None else _over_time("history", history, n)
    area = None if margins is None else _over_time("margins", margins, n)
    duel = None
    if rivals is not None:
        if area is None:
            raise ValueError("rivals are given without margins; they belong together")
        duel = mean_duel(given, area, _rivals(rivals, area.shape, num_classes), num_classes)
    method = choose(method, past is not None, area is not None, duel is not None)
    if threshold is not None and method != "aum":
        raise ValueError(f"threshold is {threshold:g}, which only method 'aum' looks at; this is {method!r}")
    if method != "final-p" and duel is not None:
        probabilities = duel
    over_time = None if past is None or (method == "mixture" and duel is not None) else mean_p(past)
    score = _score(method, final_p(given, probabilities), over_time, area, threshold)
    suggested = probabilities.argmax(axis=1)
    # A tie is no disagreement.
    suggested = np.where(probabilities[np.arange(n), given] >= probabilities.max(axis=1), given, suggested)
    noise = estimate_noise(given, probabilities, seed=seed, bootstrap=bootstrap)
    if (method == "aum" and threshold is not None) or method == "mixture":
        issue = (score > 0.5) & (suggested != given)
    else:
        issue = _most_suspicious(given, suggested, score, probabilities)
    return Suspects(
        index=np.arange(n),
        given=given,
        suggested=suggested,
        score=score,
        issue=issue,
        p_given=probabilities[np.arange(n), given],
        p_suggested=probabilities[np.arange(n), suggested],
        class_names=_names("class_names", class_names, num_classes),
        sources=_names("sources", sources, n),
        method=how or method,
        noise=noise,
    )


def choose(method: str, has_history: bool, has_margins: bool, has_rivals: bool) -> Method:
    """The method that "auto" means, or the one named; ValueError where it lacks what it needs."""
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; expected one of {', '.join(METHODS)}")
    if method == "auto":
        return "duel" if has_rivals else "mean-p" if has_history else "final-p"
    needed = {"mean-p": ("history", has_history), "aum": ("margins", has_margins), "duel": ("rivals", has_rivals)}
    what, is_there = needed.get(method, ("", True))
    if not is_there:
        raise ValueError(f"method {method!r} needs {what}")
    return method


def _score(
    method: Method, plain: Numbers, over_time: Numbers | None, area: Numbers | None, threshold: float | None
) -> Numbers:
    """Of final-p and duel `plain` is all, since the probabilities are theirs."""
    if method == "aum" and area is not None:
        return margin_score(area_under_margin(area), threshold or 0.0)
    if method == "mean-p" and over_time is not None:
        return over_time
    if method == "mixture":
        return mixture(plain if over_time is None else over_time)
    return plain


def _most_suspicious(
    given: NDArray[np.int64], suggested: NDArray[np.int64], score: Numbers, probabilities: Numbers
) -> NDArray[np.bool_]:
    """In every class as many as the estimate says are wrong in it, of those that the model disagrees with."""
    num_classes = probabilities.shape[1]
    joint = joint_of(given, confident_classes(given, probabilities), num_classes)
    wrong = np.rint((joint.sum(axis=1) - joint.diagonal()) * len(given)).astype(np.int64)
    issue = np.zeros(len(given), bool)
    for label in np.flatnonzero(wrong):
        open_to_doubt = np.flatnonzero((given == label) & (suggested != given))
        issue[open_to_doubt[np.argsort(-score[open_to_doubt], kind="stable")[: wrong[label]]]] = True
    return issue


def check_labels(labels: ArrayLike, pred_probs: ArrayLike) -> tuple[NDArray[np.int64], Numbers]:
    """Both as arrays, or a sentence on what is wrong with them."""
    given, probabilities = np.asarray(labels), np.asarray(pred_probs)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise ValueError(f"labels must be (N,) integers, not {given.shape} of {given.dtype}")
    if probabilities.ndim != 2 or probabilities.dtype.kind != "f" or probabilities.shape[1] < 2:
        raise ValueError(f"pred_probs must be (N, C) floats, not {probabilities.shape} of {probabilities.dtype}")
    if len(given) != len(probabilities) or not len(given):
        raise ValueError(f"{len(given)} labels but {len(probabilities)} rows of pred_probs; expected as many, and some")
    probabilities = probabilities.astype(np.float64)
    _refuse_row("labels", f"from 0 to {probabilities.shape[1] - 1}", (given < 0) | (given >= probabilities.shape[1]))
    inside = (probabilities >= 0) & (probabilities <= 1 + 1e-6)  # False for NaN, too
    _refuse_row("pred_probs", "between 0 and 1", ~inside.all(axis=1))
    _refuse_row("pred_probs", "rows that sum to 1", np.abs(probabilities.sum(axis=1) - 1) > 1e-2)
    return given.astype(np.int64), np.minimum(probabilities, 1.0)


def _over_time(name: str, values: ArrayLike, n: int) -> Numbers:
    array = np.asarray(values)
    if array.ndim != 2 or len(array) != n or not array.shape[1] or array.dtype.kind != "f":
        raise ValueError(
            f"{name} must be ({n}, E) floats, a column for each evaluation, not {array.shape} of {array.dtype}"
        )
    _refuse_row(name, "numbers", np.isnan(array).any(axis=1))
    if name == "history":
        _refuse_row(name, "between 0 and 1", ((array < 0) | (array > 1)).any(axis=1))
    return array.astype(np.float64)


def _rivals(values: ArrayLike, shape: tuple[int, ...], num_classes: int) -> NDArray[Any]:
    array = np.asarray(values)
    if array.shape != shape or array.dtype.kind not in "iu":
        raise ValueError(f"rivals must be {shape} integers, as margins, not {array.shape} of {array.dtype}")
    _refuse_row("rivals", f"from 0 to {num_classes - 1}", ((array < 0) | (array >= num_classes)).any(axis=1))
    return array


def _refuse_row(name: str, expected: str, bad: NDArray[np.bool_] | np.bool_) -> None:
    if bad.any():
        raise ValueError(f"{name} must be {expected}; row {int(bad.argmax())} is not ({int(bad.sum())} such rows)")


def _names(name: str, values: Sequence[str] | None, count: int) -> tuple[str, ...]:
    if values is None:
        return tuple(map(str, range(count)))
    if len(values) != count:
        raise ValueError(f"{len(values)} {name} for {count}")
    return tuple(values)
