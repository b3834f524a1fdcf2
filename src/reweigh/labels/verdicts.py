"""What to do with suspects: keep a label, replace it, or drop the example."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reweigh.labels.arrays import read_labels, to_array
from reweigh.labels.suspects import Suspects

Verdict: TypeAlias = Literal["keep", "fix", "drop"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

SURE = 0.9  # probability of the suggested label from which a label is replaced


class Applied(NamedTuple):
    """Labels after verdicts were applied.

    Attributes:
        labels: (N,) in the form in which they were passed; dropped examples have their old label.
        keep: (N,) bool, False for dropped examples.
        verdicts: (N,) "keep", "fix" or "drop".
    """

    labels: NDArray[Any]
    keep: NDArray[np.bool_]
    verdicts: NDArray[np.str_]


def verdicts(suspects: Suspects, *, sure: float = SURE, threshold: float | None = None) -> NDArray[np.str_]:
    """Return a verdict for each suspect, in the order of its arrays.

    An issue is fixed if the suggested label has at least the probability `sure`, and dropped otherwise: the model
    disagrees with the label without being certain of another one. Everything else is kept, also an issue whose
    suggested label is the given one.

    Args:
        suspects: the suspects.
        sure: see above; 0 fixes all issues with another suggestion, and a value above 1 drops all issues.
        threshold: take scores of at least this as issues, instead of `suspects.issue`.
    """
    issue = suspects.issue if threshold is None else suspects.score >= threshold
    differs = suspects.suggested != suspects.given
    fix = differs & (suspects.p_suggested >= sure)
    return np.where(issue & (differs | (sure > 1)), np.where(fix, "fix", "drop"), "keep")


def apply(labels: ArrayLike, suspects: Suspects, *, sure: float = SURE, threshold: float | None = None) -> Applied:
    """Apply the verdicts on suspects to a copy of the labels they were found in.

    Args:
        labels: (N,) the labels, as passed to `find_suspects`.
        suspects: of these labels; it may hold only some of the examples.
        sure, threshold: as in `verdicts`.

    >>> from reweigh.labels import find_suspects
    >>> labels = ["cat", "cat", "dog", "dog", "dog"]
    >>> pred_probs = [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9], [1.0, 0.0]]
    >>> apply(labels, find_suspects(labels, pred_probs)).labels.tolist()
    ['cat', 'cat', 'dog', 'dog', 'cat']
    """
    given, _ = read_labels(labels, class_names=suspects.class_names)
    if len(suspects) and int(suspects.index.max()) >= len(given):
        raise ValueError(f"suspects: index {int(suspects.index.max())} is out of range for {len(given)} labels")
    differs = given[suspects.index] != suspects.given
    if differs.any():
        i = int(suspects.index[differs][0])
        raise ValueError(f"labels: example {i} has another label than in suspects; are they of other data?")
    every = np.full(len(given), "keep")
    every[suspects.index] = verdicts(suspects, sure=sure, threshold=threshold)
    corrected = to_array(labels).copy()
    classes = given.copy()
    classes[suspects.index] = suspects.suggested
    fixed = np.flatnonzero(every == "fix")
    if corrected.dtype.kind in "OUST":
        corrected = corrected.astype(object)
        corrected[fixed] = [suspects.class_names[k] for k in classes[fixed].tolist()]
    else:
        corrected[fixed] = classes[fixed]
    return Applied(corrected, every != "drop", every)
