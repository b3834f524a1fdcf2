"""Data sets: one small frozen `Dataset` value, and one file per format that makes it.

`reweigh.lab.data.registry.load("cifar10")` (or a path) is the door the command line uses; every loader can also
be called by itself, e.g. `reweigh.lab.data.cifar.load(root)`. Nothing here touches the network except
`reweigh.lab.data.get.get`, and that only when it is called.
"""

from __future__ import annotations

from reweigh.lab.data.dataset import Dataset, Part

__all__ = ["Dataset", "Part"]
