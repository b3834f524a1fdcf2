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

from reweigh.labels.arrays import Labels, check_rows, names_of, read_labels, to_array
from reweigh.labels.noise import NoiseEstimate, confident_classes, estimate_noise, joint_of
from reweigh.labels.scores import area_under_margin, final_p, margin_score, mean_p, mean_pairwise_p, mixture

Method: TypeAlias = Literal["auto", "final-p", "mean-p", "duel", "aum", "mixture"]
METHODS: tuple[Method, ...] = get_args(Method)

Floats: TypeAlias = NDArray[np.float64]


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
        noise: the estimated noise; None after reading a file, which does not contain it, and where only the p of the
            given labels is known.
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
    pred_probs: ArrayLike | None = None,
    *,
    embeddings: ArrayLike | None = None,
    history: ArrayLike | None = None,
    logit_gaps: ArrayLike | None = None,
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

    Pass `pred_probs`, `embeddings`, or what a training recorded: `history`, or `logit_gaps` with `rivals`. All arrays
    may be numpy arrays, tensors of any type, lists, or columns of a data frame.

    method      score                                                                  needs
    final-p     1 - p of the given label                                               pred_probs or embeddings
    mean-p      1 - its mean over training                                             history
    duel        1 - its mean pairwise probability against the strongest other class    logit_gaps, rivals
    aum         area under the margin                                                  logit_gaps
    mixture     posterior of the noisy one of two Beta components, fitted to the
                first available of duel, mean-p and final-p

    "auto" is the first available of duel, mean-p and final-p.

    The suggested label is the most probable class: by `mean_pairwise_p` if rivals are passed and the method is not
    final-p, else by `pred_probs`. The noise is estimated from the same probabilities. Only examples whose suggested
    label differs from the given one can be issues: with aum and a threshold, those below it; with mixture, those with
    a posterior above 1/2; otherwise the most suspicious of each class, as many as are estimated to be wrong in that
    class. A rare class is therefore not compared with frequent ones.

    If only the p of the given labels is known (a 2-D `history` alone), no label is suggested, the noise is not
    estimated, and the issues are those of mixture.

    Args:
        labels: (N,) class ids, or class names as strings.
        pred_probs: (N, C) probabilities, out of fold or from a model that resists label noise. With labels as strings
            the columns are in the order of `class_names`.
        embeddings: (N, D) features, such as those of a pretrained net; replaces `pred_probs` by cross-fitted
            predictions of a linear head and of nearest neighbours.
        history: (N, E), p of the given label at E evaluations (`reweigh.lab.record.read_p`), or (N, E, C), p of all
            classes.
        logit_gaps: (N, E), logit of the given label minus the largest other logit (`reweigh.lab.record.read_margins`,
            `reweigh.Recorder`); NaN where an example was not evaluated. `reweigh.margin.margin` is another quantity: it
            subtracts the logsumexp of the other logits.
        rivals: (N, E), the class of that other logit.
        threshold: area under the margin below which a label is wrong, found by threshold samples; only for aum.
        method: see above.
        class_names: class id -> name; by default the sorted distinct strings, or numbers.
        sources: names of the examples; row numbers by default.
        description: how the scores were computed, for the table; the method's name by default.
        seed, bootstrap: seed and number of the resamples behind the noise estimate's intervals.

    >>> labels = np.array([0, 0, 0, 1, 1, 1, 1, 1])
    >>> truth = np.array([0, 0, 0, 1, 1, 1, 1, 0])
    >>> suspects = find_suspects(labels, np.where(np.arange(2) == truth[:, None], 0.9, 0.1))
    >>> np.flatnonzero(suspects.issue), int(suspects.suggested[7]), suspects.noise.rate
    (array([7]), 0, 0.125)
    """
    probabilities = None if pred_probs is None else _check_probabilities(pred_probs)
    every = None if history is None else to_array(history)
    of_classes = every if every is not None and every.ndim == 3 else None
    if of_classes is not None and len(of_classes) and of_classes.shape[1]:
        mean = _check_probabilities(of_classes.mean(axis=1, dtype=np.float64))
        probabilities = mean if probabilities is None else probabilities
    given, names = read_labels(labels, None if probabilities is None else probabilities.shape[1], class_names)
    n, num_classes, rows = len(given), len(names), np.arange(len(given))
    if embeddings is not None:
        if probabilities is not None:
            raise ValueError("embeddings replaces pred_probs; pass one of them")
        from reweigh.labels.embeddings import probabilities_of

        probabilities = probabilities_of(given, embeddings, num_classes, seed=seed)
    if probabilities is not None and len(probabilities) != n:
        name = "pred_probs" if pred_probs is not None else "history"
        raise ValueError(f"labels has {n} entries and {name} {len(probabilities)} rows; expected the same number")
    if every is not None:
        every = _check_evaluations("history", every if of_classes is None else of_classes[rows, :, given], n)
    gaps = None if logit_gaps is None else _check_evaluations("logit_gaps", to_array(logit_gaps), n)
    pairwise = None
    if rivals is not None:
        if gaps is None:
            raise ValueError("rivals needs logit_gaps; pass both")
        strongest = _check_rivals(rivals, gaps.shape, num_classes)
        pairwise = mean_pairwise_p(given, gaps, strongest, num_classes)
    chosen = choose_method(method, history=every is not None, logit_gaps=gaps is not None, rivals=pairwise is not None)
    if chosen == "final-p" and probabilities is None:
        raise ValueError(f"method {method!r} needs pred_probs or embeddings")
    if threshold is not None and chosen != "aum":
        raise ValueError(f"threshold is {threshold:g}, but method is {chosen!r}; only 'aum' uses a threshold")
    if probabilities is None or (chosen != "final-p" and pairwise is not None):
        probabilities = pairwise

    if every is not None and (chosen == "mean-p" or (chosen == "mixture" and pairwise is None)):
        score = mean_p(every)
    elif chosen == "aum" and gaps is not None:
        score = margin_score(area_under_margin(gaps), threshold or 0.0)
    else:
        assert probabilities is not None
        score = final_p(given, probabilities)  # the score of final-p and duel
    if chosen == "mixture":
        score = mixture(score)

    if probabilities is None:
        p_given = p_suggested = 1.0 - mean_p(every) if every is not None else 1.0 - score
        classes, noise, issue = given, None, (score if chosen == "mixture" else mixture(score)) > 0.5
    else:
        classes = suggested(given, probabilities)
        p_given, p_suggested = probabilities[rows, given], probabilities[rows, classes]
        noise = estimate_noise(given, probabilities, seed=seed, bootstrap=bootstrap)
        if chosen == "mixture" or threshold is not None:
            issue = (score > 0.5) & (classes != given)
        else:
            issue = _most_suspicious(given, classes, score, probabilities)
    return Suspects(
        index=rows,
        given=given,
        suggested=classes,
        score=score,
        issue=issue,
        p_given=p_given,
        p_suggested=p_suggested,
        class_names=names,
        sources=names_of("sources", sources, n, "examples"),
        description=description or chosen,
        noise=noise,
    )


def suggested(labels: Labels, pred_probs: NDArray[np.floating[Any]]) -> Labels:
    """Return the most probable class of each example; the given one if no class has a higher probability.

    >>> suggested(np.array([1, 1]), np.array([[0.5, 0.5], [0.6, 0.4]]))
    array([1, 0])
    """
    agrees = pred_probs[np.arange(len(labels)), labels] >= pred_probs.max(axis=1)
    return np.where(agrees, labels, pred_probs.argmax(axis=1))


def choose_method(method: str, *, history: bool, logit_gaps: bool, rivals: bool) -> Method:
    """Resolve "auto" to the best method that the available arrays allow, and check any other.

    Raises:
        ValueError: the method is unknown, or its arrays are not available.

    >>> choose_method("auto", history=True, logit_gaps=False, rivals=False)
    'mean-p'
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; expected one of {', '.join(METHODS)}")
    if method == "auto":
        return "duel" if rivals else "mean-p" if history else "final-p"
    needs = {"mean-p": ("history", history), "aum": ("logit_gaps", logit_gaps), "duel": ("rivals", rivals)}
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


def _check_probabilities(pred_probs: ArrayLike) -> Floats:
    """Return pred_probs as an array of float64; ValueError if it is invalid."""
    probabilities = to_array(pred_probs)
    if probabilities.ndim != 2 or probabilities.dtype.kind != "f" or probabilities.shape[1] < 2:
        raise ValueError(f"pred_probs must be (N, C) floats, not {probabilities.shape} of {probabilities.dtype}")
    probabilities = probabilities.astype(np.float64)
    inside = (probabilities >= 0) & (probabilities <= 1 + 1e-6)  # False for NaN, too
    check_rows("pred_probs", "between 0 and 1", ~inside.all(axis=1))
    check_rows("pred_probs", "rows that sum to 1", np.abs(probabilities.sum(axis=1) - 1) > 1e-2)
    clipped: Floats = np.minimum(probabilities, 1.0)
    return clipped


def _check_evaluations(name: str, array: NDArray[Any], n: int) -> Floats:
    if array.ndim != 2 or len(array) != n or not array.shape[1] or array.dtype.kind != "f":
        raise ValueError(f"{name} must be ({n}, E) floats for E evaluations, not {array.shape} of {array.dtype}")
    if name == "history":
        check_rows(name, "between 0 and 1", ~((array >= 0) & (array <= 1)).all(axis=1))
    check_rows(name, "numbers", np.isnan(array).all(axis=1))
    return array.astype(np.float64)


def _check_rivals(values: ArrayLike, shape: tuple[int, ...], num_classes: int) -> NDArray[Any]:
    array = to_array(values)
    if array.shape != shape or array.dtype.kind not in "iu":
        raise ValueError(f"rivals must be {shape} integers, like logit_gaps, not {array.shape} of {array.dtype}")
    check_rows("rivals", f"from 0 to {num_classes - 1}", ((array < 0) | (array >= num_classes)).any(axis=1))
    return array
