"""What the paper claims, one rule for each by which saved results decide it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from paper import rules
from paper.rules import COLLAPSE, LET_GO, NEAR, TRACKS, Found, Results


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Attributes:
        text: in words.
        rule: how it is decided.
        judge: results -> what was found, None where nothing was measured.
    """

    text: str
    rule: str
    judge: Callable[[Results], Found | None]


class Verdict(NamedTuple):
    """A claim with what became of it."""

    claim: str
    rule: str
    verdict: str
    seen: str


def verdicts(results: Results) -> list[Verdict]:
    """One for every claim."""
    told = []
    for claim in CLAIMS:
        found = claim.judge(results)
        word = "not measured" if found is None else "holds" if found.holds else "does not hold"
        told.append(Verdict(claim.text, claim.rule, word, "" if found is None else found.seen))
    return told


CLAIMS = (
    Claim(
        "Wrong labels have a lower p than right ones throughout training.",
        "At every evaluation of every run under noise, the mean p of wrong labels is below that of right ones.",
        rules.noisy_below_clean,
    ),
    Claim(
        "Early stopping is unnecessary with DM.",
        f"For every DM with lam > 0 that the paper prints, under noise, best - final is at most {LET_GO:g} point.",
        rules.stopping_unnecessary,
    ),
    Claim(
        "Accuracy on the intact training labels is always consistent with test accuracy.",
        f"Over the runs of each net at each rate of noise, the two are correlated by at least {TRACKS}.",
        rules.intact_tracks_test,
    ),
    Claim(
        "The best emphasis mode rises with the noise rate.",
        "In every ablation, the mode of the best DM never falls from one rate to the next and rises in all.",
        rules.mode_rises,
    ),
    Claim(
        "CCE is very competitive with MAE, MSE and GCE.",
        f"In every noisy column with all four, CCE is within {NEAR:g} points of the best of them.",
        rules.cce_competitive,
    ),
    Claim(
        "DM is the best in every block.",
        "In every column with DM and at least two others, a row of DM is the first.",
        rules.dm_best,
    ),
    Claim(
        "Models collapse where the emphasis variance is too large.",
        f"In an ablation there is a mode whose largest beta ends {COLLAPSE:g} points or more below its best beta.",
        rules.variance_collapses,
    ),
    Claim(
        "Label correction with DM helps.",
        "For every DM, the training on corrected labels ends above the first.",
        rules.correction_helps,
    ),
    Claim(
        "One learning rate serves all rows of a table (not said, but taken for granted).",
        f"Every row ends within {NEAR:g} points of that at its own best learning rate.",
        rules.one_rate_serves,
    ),
)
"""In the order of the paper, and last what it does not say."""
