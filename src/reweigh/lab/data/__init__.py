"""Data sets: a frozen `Dataset` value, and one loader per format.

`reweigh.lab.data.registry.load("cifar10")` loads by name or path, as the command line does; every loader can also be
called directly, e.g. `reweigh.lab.data.cifar.load(root)`. Only `reweigh.lab.data.get.get` uses the network.
"""

from __future__ import annotations

from reweigh.lab.data.dataset import Dataset, Part

__all__ = ["Dataset", "Part"]
