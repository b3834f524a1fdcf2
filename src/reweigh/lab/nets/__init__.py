"""Networks, built by name and initialised from a given generator."""

from reweigh.lab.nets.net import Net, classify
from reweigh.lab.nets.registry import build, names
from reweigh.lab.nets.weights import load_weights

__all__ = ["Net", "build", "classify", "load_weights", "names"]
