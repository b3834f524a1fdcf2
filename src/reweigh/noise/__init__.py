"""Label noise: pure functions from clean labels to a `Corruption`, which holds noisy labels and what was measured."""

from reweigh.noise.class_noise import (
    CIFAR10_MAP,
    asymmetric_cifar10,
    block_cycle,
    blocks,
    class_map,
    cycle,
    map_matrix,
    pair,
    random_pairs,
    sl_block_pair,
    superclass_cycle,
    superclass_pair,
    symmetric,
    symmetric_matrix,
    transition,
)
from reweigh.noise.corruption import Corruption, label_hash
from reweigh.noise.files import load_corruption, save_corruption
from reweigh.noise.given import given, read_labels
from reweigh.noise.instance import instance_dependent
from reweigh.noise.kinds import KINDS, corrupt

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
    "load_corruption",
    "map_matrix",
    "pair",
    "random_pairs",
    "read_labels",
    "save_corruption",
    "sl_block_pair",
    "superclass_cycle",
    "superclass_pair",
    "symmetric",
    "symmetric_matrix",
    "transition",
]
