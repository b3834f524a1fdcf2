"""Cross entropy with soft labels from a file."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from reweigh.errors import DataError
from reweigh.lab.batches import Batch
from reweigh.lab.methods.protocol import Context
from reweigh.lab.methods.teaching import Teaching, alike, row_losses
from reweigh.noise.files import read_array


class SoftLabels(Teaching):
    """L = -Σ_j Y_ij log p_ij: every example's label is its row of the file; the given labels are not used.

    Args:
        file: a .npy of (N, C) probabilities, in the order of the training part.
        hash: how the file's sha256 must begin.
    """

    capture_key = alike

    def __init__(self, context: Context, file: str, hash: str | None = None) -> None:
        super().__init__(context)
        rows = read_array(file, (len(context.labels), context.num_classes), hash=hash)
        wrong = np.flatnonzero((rows < 0).any(1) | (np.abs(rows.sum(1) - 1) > 1e-4))
        if wrong.size:
            raise DataError(
                f"{file}: row {wrong[0]} is no distribution over classes: it sums to {rows[wrong[0]].sum()}"
            )
        self.soft = torch.from_numpy(rows.astype(np.float32)).to(context.device)

    def loss(self, batch: Batch, step: int) -> Tensor:
        return row_losses(self.net(batch.inputs), self.soft[batch.index]).mean()
