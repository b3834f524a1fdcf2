"""Label noise: pure functions from clean labels to a `Corruption`, which carries what was really done."""

from reweigh.noise.corruption import Corruption, label_hash
from reweigh.noise.flips import CIFAR10_MAP, asymmetric_cifar10, class_map, pair, symmetric
from reweigh.noise.given import given, read_labels
from reweigh.noise.groups import (
    block_cycle,
    blocks,
    cycle,
    random_pairs,
    sl_block_pair,
    superclass_cycle,
    superclass_pair,
)
from reweigh.noise.instance import instance_dependent
from reweigh.noise.kinds import KINDS, corrupt
from reweigh.noise.store import load, save
from reweigh.noise.transition import map_matrix, symmetric_matrix, transition

__all__ = [
    "CIFAR10_MAP",
    "KINDS",
    "Corruption",
    "asymmetric_cifar10",
    "block_cycle",
    "blocks",
    "class_map",
    "corrupt",
    "cycle",
    "given",
    "instance_dependent",
    "label_hash",
    "load",
    "map_matrix",
    "pair",
    "random_pairs",
    "read_labels",
    "save",
    "sl_block_pair",
    "superclass_cycle",
    "superclass_pair",
    "symmetric",
    "symmetric_matrix",
    "transition",
]
