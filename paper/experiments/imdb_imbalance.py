"""Table 3, lower half: sentiment of IMDB reviews with 10 or 50 times as many positive as negative ones.

python -m paper run paper/experiments/imdb_imbalance.py --device cpu
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from paper import Experiment, Row, grid
from paper.experiments.imdb_noise import DIFFERS, EITHER_SIGN, SEEDS, losses
from paper.protocols import paper, search_beta
from reweigh.lab.spec import Run

COLUMNS = ("10:1", "50:1")


def make(column: str) -> Callable[..., Run]:
    """Return a function from a weighting to its run in a column."""
    ratio = column.partition(":")[0]
    return lambda weighting: replace(paper("imdb", weighting=weighting), imbalance=f"ratio({ratio}, minority=0)")


PRINTED = {
    "CCE": "78.9 63.4",
    "GCE": "77.0 50",
    "MAE": "75.4 50",
    "MSE": "77.6 58.6",
    "CCE-DN": "77.5 61.4",
    "GCE-DN": "59.1 50",
    "MAE-DN": "50 50",
    "MSE-DN": "78.5 64.4",
}

EXPERIMENT = Experiment(
    name="imdb_imbalance",
    title="Table 3: IMDB, imbalance",
    protocol="text",
    cells=grid(
        COLUMNS,
        [
            *losses(make, PRINTED),
            Row("DM", lambda column: make(column)("DM(0.3, 6.5)"), "80.6 65.0"),
            Row("DM(lam=0.3), beta searched", lambda column: search_beta(make(column), 0.3, EITHER_SIGN)),
        ],
    ),
    seeds=SEEDS,
    differs="50.0 is printed as 0.5, a fraction among percentages: only one class is predicted. " + DIFFERS,
)
