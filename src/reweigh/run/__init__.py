"""execute(Run): from a frozen description to a trained model and a record that can be trusted."""

from reweigh.run.execute import Interrupted, Update, execute
from reweigh.run.jobs import Outcome, execute_many
from reweigh.train.captured import Speed

__all__ = ["Interrupted", "Outcome", "Speed", "Update", "execute", "execute_many"]
