"""Methods that teach a net inside one training loop, each behind the protocol of `protocol.py`."""

from reweigh.lab.methods.criterion import ByCriterion
from reweigh.lab.methods.protocol import Context, Method
from reweigh.lab.objectives.methods import NAMES, method_from

__all__ = ["NAMES", "ByCriterion", "Context", "Method", "method_from"]
