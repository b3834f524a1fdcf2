"""Which labels are wrong: scores, verdicts and noise estimates, from arrays."""

from reweigh.labels.find import METHODS, find_suspects
from reweigh.labels.noise import estimate_noise
from reweigh.labels.suspects import NoiseEstimate, Suspects

__all__ = ["METHODS", "NoiseEstimate", "Suspects", "estimate_noise", "find_suspects"]
