"""Find wrong labels and estimate the label noise, from arrays."""

from reweigh.labels.noise import NoiseEstimate, estimate_noise
from reweigh.labels.suspects import METHODS, Suspects, find_suspects

__all__ = ["METHODS", "NoiseEstimate", "Suspects", "estimate_noise", "find_suspects"]
