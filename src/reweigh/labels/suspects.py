"""Examples with their labels and scores, and an estimate of the label noise."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class NoiseEstimate:
    """The estimated share of wrong labels and the chances of each mistake, with an interval around each number.

    Attributes:
        rate, low, high: the share of wrong labels.
        transition, transition_low, transition_high: (C, C), P(given label | true label), [true, given].
    """

    rate: float
    low: float
    high: float
    transition: NDArray[np.float64]
    transition_low: NDArray[np.float64]
    transition_high: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Suspects:
    """N training examples and how suspicious their labels are; all arrays are (N,) and in the same order.

    Attributes:
        index: int64, the row in the training part.
        given, suggested: int64 class ids; equal where the model agrees with the label.
        score: float64 in [0, 1], higher is more suspicious.
        issue: bool, whether the label is called wrong.
        p_given, p_suggested: float64, the model's probability of either class.
        class_names: class id -> name.
        sources: N names of examples: files, lines of a table, beginnings of texts, or row numbers.
        method: how the scores were found, in words.
        noise: the estimated noise; None after reading a file, which does not hold it.
    """

    index: NDArray[np.int64]
    given: NDArray[np.int64]
    suggested: NDArray[np.int64]
    score: NDArray[np.float64]
    issue: NDArray[np.bool_]
    p_given: NDArray[np.float64]
    p_suggested: NDArray[np.float64]
    class_names: tuple[str, ...]
    sources: tuple[str, ...]
    method: str
    noise: NoiseEstimate | None

    def __post_init__(self) -> None:
        for name in ("index", "given", "suggested", "score", "issue", "p_given", "p_suggested", "sources"):
            if len(getattr(self, name)) != len(self.index):
                raise ValueError(f"{name} has {len(getattr(self, name))} entries; index has {len(self.index)}")

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"Suspects({len(self)} examples, {int(self.issue.sum())} issues, {self.method!r})"

    def ranked(self) -> NDArray[np.int64]:
        """(N,) positions in these arrays, the most suspicious first, equal scores by index."""
        return np.lexsort((self.index, -self.score))

    def ranked_issues(self) -> NDArray[np.int64]:
        """`ranked`, only those that are called wrong."""
        order = self.ranked()
        return order[self.issue[order]]

    @property
    def label_quality(self) -> NDArray[np.float64]:
        """(N,) 1 - score: what cleanlab calls the label quality."""
        return 1.0 - self.score

    def take(self, positions: NDArray[np.int64]) -> Suspects:
        """The examples at these positions, in that order."""
        arrays = {f.name: getattr(self, f.name)[positions] for f in fields(self)[:7]}
        sources = tuple(self.sources[i] for i in positions.tolist())
        return Suspects(**arrays, class_names=self.class_names, sources=sources, method=self.method, noise=self.noise)
