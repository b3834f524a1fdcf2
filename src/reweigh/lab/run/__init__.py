"""execute(Run): from a frozen description to a trained model and a record that can be trusted."""

from reweigh.lab.run.execute import Interrupted, Update, execute
from reweigh.lab.run.jobs import Outcome, execute_many
from reweigh.lab.train.captured import Speed

__all__ = ["Interrupted", "Outcome", "Speed", "Update", "execute", "execute_many"]
