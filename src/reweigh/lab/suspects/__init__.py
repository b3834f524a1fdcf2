"""Find suspicious labels with training runs, correct them, and train again."""

from reweigh.lab.run.defaults import default_run
from reweigh.lab.suspects.detect import RunSuspects, suspects_of
from reweigh.lab.suspects.table import read_csv, write_csv

__all__ = ["RunSuspects", "default_run", "read_csv", "suspects_of", "write_csv"]
