"""From a trained model back to the labels: which of them to look at, and how many are wrong."""

from reweigh.suspects.defaults import default_run
from reweigh.suspects.evidence import Found, suspects_of
from reweigh.suspects.find import METHODS, find_suspects
from reweigh.suspects.noise import estimate_noise
from reweigh.suspects.table import NoiseEstimate, Suspects, read_csv, write_csv

__all__ = [
    "METHODS",
    "Found",
    "NoiseEstimate",
    "Suspects",
    "default_run",
    "estimate_noise",
    "find_suspects",
    "read_csv",
    "suspects_of",
    "write_csv",
]
