"""From a trained model back to the labels: which of them to look at, and how many are wrong."""

from reweigh.lab.suspects.defaults import default_run
from reweigh.lab.suspects.evidence import Found, suspects_of
from reweigh.lab.suspects.table import read_csv, write_csv

__all__ = ["Found", "default_run", "read_csv", "suspects_of", "write_csv"]
