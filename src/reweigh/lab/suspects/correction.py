"""A correction on disk, beside the data and never in their place.

corrected/
  labels-0123456789ab.npy   the labels of all examples that stay, in their order
  kept-0123456789ab.npy     1 for every row of the data set's training part that stays, 0 for the others; not there
                            where all of them do
  changes.csv               the log: index, source, before, after, why
  correction.json           what it was made from, and how to train on it

The names hold the beginning of each file's sha256, so a run on them can't be taken for a run on other labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.procedures.label_correction import check_correctable, relabelled
from reweigh.lab.record.files import make_folder, read_json, replace_file, write_json
from reweigh.lab.run.material import Material
from reweigh.lab.spec import Expression, Run, parse
from reweigh.lab.suspects.correct import Corrected, log_csv
from reweigh.noise.files import array_bytes, file_hash

FORMAT = 1
FILE, LOG = "correction.json", "changes.csv"


@dataclass(frozen=True)
class Correction:
    """Where a correction lies and what it holds; `kept` is None where no list of examples is needed."""

    folder: Path
    labels: str
    kept: str | None
    data_hash: str
    examples: int
    fixed: int
    dropped: int

    def corrected(self, run: Run) -> Run:
        """The run on the corrected labels, with nothing else changed; it refuses other data."""
        again = relabelled(run, (self.folder / self.labels).as_posix())
        if self.kept is not None:
            kept = str(Expression("kept", ((self.folder / self.kept).as_posix(),)))
            again = replace(again, imbalance=kept)
        return replace(again, data_hash=run.data_hash or self.data_hash[:12])

    def to_mapping(self) -> dict[str, Any]:
        """The content of correction.json, but for what it was made from."""
        return {"format": FORMAT} | {name: value for name, value in vars(self).items() if name != "folder"}


def write_correction(
    folder: Path,
    corrected: Corrected,
    run: Run,
    material: Material,
    *,
    sources: Sequence[str],
    made_from: str,
) -> Correction:
    """Write corrected labels into a folder of their own.

    Args:
        folder: a new one, or one that holds the same correction, whole or as far as a break left it.
        corrected: of `material.train.labels`; every class that has examples there must keep one.
        run, material: whose training part it is.
        sources: a name for every example of it.
        made_from: the file of suspects or decisions, for the record.
    """
    check_correctable(run)
    _check_classes(corrected, material)
    labels = array_bytes(corrected.labels[corrected.keep])
    listed = not corrected.keep.all() or draws_examples(run)
    kept = array_bytes(_mask(corrected.keep, material)) if listed else None
    dropped = int((~corrected.keep).sum())
    correction = Correction(
        folder=folder,
        labels=f"labels-{file_hash(labels)}.npy",
        kept=None if kept is None else f"kept-{file_hash(kept)}.npy",
        data_hash=material.data_hash,
        examples=len(corrected.labels),
        fixed=len(corrected.changes) - dropped,
        dropped=dropped,
    )
    correction.corrected(run)  # a folder that no run can name is refused before it is there
    _check_folder(correction)
    make_folder(folder)
    log = log_csv(corrected.changes, sources, material.dataset.class_names).encode()
    for name, content in ((correction.labels, labels), (correction.kept, kept), (LOG, log)):
        if name is not None and content is not None:
            _write(folder / name, content)
    write_json(folder / FILE, correction.to_mapping() | {"made_from": made_from, "run": run.to_mapping()})
    return correction


def draws_examples(run: Run) -> bool:
    """Whether the run's seed chooses its examples: with another seed, labels would fall on others.

    >>> run = Run(data="digits", net="linear", weighting="CCE", imbalance="long_tail(10)")
    >>> draws_examples(run), draws_examples(replace(run, imbalance="kept('kept.npy')"))
    (True, False)
    """
    return run.imbalance is not None and parse(run.imbalance).name != "kept"


def _mask(keep: NDArray[np.bool_], material: Material) -> NDArray[np.uint8]:
    """Which rows of the whole training part stay, of which the run may have taken only some."""
    mask = np.zeros(len(material.dataset.train), dtype=np.uint8)
    mask[np.arange(len(mask)) if material.rows is None else material.rows] = keep
    return mask


def _check_classes(corrected: Corrected, material: Material) -> None:
    names = material.dataset.class_names
    before = np.bincount(material.train.labels, minlength=len(names))
    after = np.bincount(corrected.labels[corrected.keep], minlength=len(names))
    for name, had, has in zip(names, before.tolist(), after.tolist(), strict=True):
        if had and not has:
            raise ValueError(
                f"the correction leaves no example of class {name!r}, which has {had}; one must stay at least"
            )


def _check_folder(correction: Correction) -> None:
    path, folder = correction.folder / FILE, correction.folder
    there = {each.name for each in folder.iterdir()} if folder.is_dir() else set()
    # Labels are written first, under their own hash, so where these lie it is this correction that was cut short.
    begun = correction.labels in there and there <= {correction.labels, correction.kept, LOG}
    if path.exists():
        told = read_json(path)
        if any(told.get(name) != value for name, value in correction.to_mapping().items()):
            raise ValueError(f"{folder} holds another correction, which stays as it is; give another folder")
    elif there and not begun:
        raise ValueError(f"{folder} is not empty and holds no correction; give another folder")


def _write(path: Path, content: bytes) -> None:
    replace_file(path, lambda file: file.write(content))
