"""posteriors.safetensors: the probability of each true class of every training example, if the method estimates it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.record.files import check_digest, open_file, replace_file

if TYPE_CHECKING:
    from torch import Tensor

FILE = "posteriors.safetensors"


class Posteriors(NamedTuple):
    """(N, C) float64, rows sum to 1.

    Attributes:
        final: posteriors at the end of training, given the label.
        mean: posteriors averaged over training.
        opinion: running means of the predictions, which do not depend on the label otherwise.
    """

    final: NDArray[np.float64]
    mean: NDArray[np.float64]
    opinion: NDArray[np.float64]

    def of(self, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return (N,) the probability of each label, averaged over the three.

        The final posterior is the best of them until a net memorises labels, the others after that.
        """
        rows = np.arange(len(labels))
        every = [array[rows, labels] for array in self]
        mean: NDArray[np.float64] = np.minimum(np.mean(every, axis=0), 1.0)
        return mean


def write_posteriors(folder: Path, *arrays: Tensor) -> None:
    """Write the arrays of `Posteriors`, in this order, as float16."""
    from safetensors.torch import save

    content = save(
        {name: x.detach().half().cpu().contiguous() for name, x in zip(Posteriors._fields, arrays, strict=True)}
    )
    replace_file(folder / FILE, lambda file: file.write(content))


def read_posteriors(folder: Path, examples: int, num_classes: int) -> Posteriors | None:
    """Return the posteriors of a run, None if its method has none; DataError if the file is damaged."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = folder / FILE
    check_digest(path)
    if not path.exists():
        return None
    try:
        with open_file(path) as file:
            arrays = load(file.read())
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); train again") from error
    rows = []
    for name in Posteriors._fields:
        array = arrays.get(name, np.zeros(0)).astype(np.float64)
        if array.shape != (examples, num_classes) or not (np.isfinite(array).all() and (array >= 0).all()):
            raise DataError(f"{path}: {name} is not {examples} x {num_classes} probabilities; train again")
        total = array.sum(axis=1, keepdims=True)
        rows.append(np.where(total > 0, array / np.where(total > 0, total, 1.0), 1.0 / num_classes))
    return Posteriors(*rows)
