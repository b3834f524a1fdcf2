"""execute(Run): from a frozen description to a trained model and a record that can be trusted."""

from reweigh.run.execute import Interrupted, Update, execute

__all__ = ["Interrupted", "Update", "execute"]
