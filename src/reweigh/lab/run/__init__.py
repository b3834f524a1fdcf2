"""Execute runs: from a `Run` to a trained model and its record."""

from reweigh.lab.run.execute import Interrupted, Update, execute
from reweigh.lab.run.jobs import Outcome, execute_many
from reweigh.lab.train.captured import Speed

__all__ = ["Interrupted", "Outcome", "Speed", "Update", "execute", "execute_many"]
