"""Networks: one file per architecture, all built by name and initialised from a caller's generator."""

from reweigh.nets.net import Net, classify
from reweigh.nets.registry import build, names
from reweigh.nets.weights import load_weights

__all__ = ["Net", "build", "classify", "load_weights", "names"]
