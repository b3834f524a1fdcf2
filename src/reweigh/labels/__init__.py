"""Find wrong labels and estimate the label noise, from arrays or in any training loop."""

from reweigh.labels.noise import NoiseEstimate, estimate_noise
from reweigh.labels.recorder import Recorder
from reweigh.labels.suspects import METHODS, Suspects, find_suspects, suggested
from reweigh.labels.verdicts import apply, verdicts

__all__ = [
    "METHODS",
    "NoiseEstimate",
    "Recorder",
    "Suspects",
    "apply",
    "estimate_noise",
    "find_suspects",
    "suggested",
    "verdicts",
]
