"""Methods that teach a net inside one training loop, each behind the protocol of `protocol.py`."""

from reweigh.methods.criterion import ByCriterion
from reweigh.methods.parse import NAMES, method_from
from reweigh.methods.protocol import Context, Method

__all__ = ["NAMES", "ByCriterion", "Context", "Method", "method_from"]
