"""Batches, on the device or through workers, with orders and augmentation that a resumed run repeats exactly."""

from reweigh.lab.batches.augment import AUGMENTATIONS, Augmentation
from reweigh.lab.batches.batch import Batch
from reweigh.lab.batches.loader import Loader
from reweigh.lab.batches.resident import Resident
from reweigh.lab.batches.sampler import Balanced, Cyclic, Order, Shuffled, Subset
from reweigh.lab.batches.statistics import Normalisation, channel_statistics, feature_statistics

__all__ = [
    "AUGMENTATIONS",
    "Augmentation",
    "Balanced",
    "Batch",
    "Cyclic",
    "Loader",
    "Normalisation",
    "Order",
    "Resident",
    "Shuffled",
    "Subset",
    "channel_statistics",
    "feature_statistics",
]
