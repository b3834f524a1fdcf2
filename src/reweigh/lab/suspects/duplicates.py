"""Identical examples with different labels: at least one of their labels is wrong, whatever a model says."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.data.dataset import Part
from reweigh.lab.data.source.images import Files
from reweigh.labels.suspects import Suspects


def contradictions(part: Part) -> list[NDArray[np.int64]]:
    """Return the rows of each group of identical examples that do not all have the same label.

    Images and rows of numbers are identical if all their values are, files if their content is, and texts if their
    words are, regardless of case and blanks.

    >>> part = Part(("a b", "A  B", "c"), np.array([0, 1, 1]))
    >>> [group.tolist() for group in contradictions(part)]
    [[0, 1]]
    """
    groups: dict[bytes, list[int]] = {}
    for i in range(len(part)):
        if (digest := _digest(part, i)) is not None:
            groups.setdefault(digest, []).append(i)
    every = (np.array(rows) for rows in groups.values() if len(rows) > 1)
    return [rows for rows in every if len(np.unique(part.labels[rows])) > 1]


def list_first(suspects: Suspects, groups: list[NDArray[np.int64]]) -> Suspects:
    """Return suspects where the contradictions have the highest score and are issues.

    In a group with a most frequent label, the others are suspects and this label is suggested; without one, all are.

    Args:
        suspects: of all examples, in order.
        groups: rows of `contradictions`.
    """
    if not groups:
        return suspects
    score, issue, suggested = suspects.score.copy(), suspects.issue.copy(), suspects.suggested.copy()
    p_suggested = suspects.p_suggested.copy()
    for rows in groups:
        labels, counts = np.unique(suspects.given[rows], return_counts=True)
        most = labels[counts == counts.max()]
        wrong = rows[suspects.given[rows] != most[0]] if len(most) == 1 else rows
        score[wrong], issue[wrong] = 1.0, True
        if len(most) == 1:
            suggested[wrong], p_suggested[wrong] = most[0], 1.0
    return replace(suspects, score=score, issue=issue, suggested=suggested, p_suggested=p_suggested)


def _digest(part: Part, i: int) -> bytes | None:
    """Return a hash of an example; None for an empty text or a file that cannot be read."""
    if isinstance(part.inputs, tuple):
        words = " ".join(part.inputs[i].casefold().split())
        return hashlib.sha256(words.encode("utf-8", "surrogatepass")).digest() if words else None
    if isinstance(part.inputs, Files):
        try:
            return hashlib.sha256(part.inputs.path(i).read_bytes()).digest()
        except (OSError, DataError):
            return None
    return hashlib.sha256(np.ascontiguousarray(part.inputs[i]).data).digest()
