"""Batches: device-resident or through workers, in orders and with augmentation that a resume repeats exactly."""

from reweigh.batches.augment import AUGMENTATIONS, Augmentation
from reweigh.batches.batch import Batch
from reweigh.batches.loader import Loader
from reweigh.batches.resident import Resident
from reweigh.batches.sampler import Balanced, Cyclic, Order, Shuffled, Subset
from reweigh.batches.statistics import Normalisation, channel_statistics, feature_statistics

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
