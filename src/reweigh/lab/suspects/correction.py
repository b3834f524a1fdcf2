"""Apply decisions to labels, write the result to a new folder, and train on it. The data stay untouched.

corrected/
  data.csv, data.npz, images/   the data with corrected labels, for anyone (`reweigh.lab.suspects.corrected_data`)
  labels-0123456789ab.npy   labels of the examples that are kept, in their order
  kept-0123456789ab.npy     1 for each row of the data set's training part that is kept, else 0; absent if all are
  changes.csv               log of all changes: index, source, before, after, why
  correction.json           what the correction was made from, and how to train on it

File names contain the beginning of the file's sha256, so runs on different labels never have the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.csv_text import csv_text
from reweigh.lab.data.split import stratified_split
from reweigh.lab.procedures.journal import Journal, RunOne, final_and_best
from reweigh.lab.procedures.label_correction import check_correctable, relabelled
from reweigh.lab.procedures.predictions import part_probabilities
from reweigh.lab.record import read_header, read_result
from reweigh.lab.record.files import leftovers, make_folder, read_json, replace_file, write_json
from reweigh.lab.run import execute
from reweigh.lab.run.material import Material, gather
from reweigh.lab.spec import Expression, Run, parse
from reweigh.lab.suspects.corrected_data import is_data, write_data
from reweigh.lab.suspects.decisions import Decision
from reweigh.noise.files import array_bytes, file_hash

FORMAT = 1
FILE, LOG = "correction.json", "changes.csv"
COMPARISON = "comparison"  # subfolder with the labels of the models that are compared
LOG_COLUMNS = ("index", "source", "before", "after", "why")
HELD = 0.2  # of the examples, to compare models before and after a correction where there is no test part


@dataclass(frozen=True)
class Change:
    """One line of the log; `after` is None for a dropped example."""

    index: int
    before: int
    after: int | None
    why: str


class Corrected(NamedTuple):
    """Labels after decisions were applied.

    Attributes:
        labels: (N,) int64, including dropped examples.
        keep: (N,) bool, False for dropped examples.
        changes: one for each example that was relabelled or dropped, by index.
    """

    labels: NDArray[np.int64]
    keep: NDArray[np.bool_]
    changes: tuple[Change, ...]


def apply_decisions(labels: NDArray[np.int64], decisions: Iterable[Decision]) -> Corrected:
    """Apply decisions to a copy of the labels that they were made for.

    A fix to the label that an example already has is not logged.

    >>> corrected = apply_decisions(np.array([0, 1, 1]), [Decision(2, 1, "fix", 0), Decision(0, 0, "drop", 0)])
    >>> corrected.labels, corrected.keep
    (array([0, 1, 0]), array([False,  True,  True]))
    >>> [change.after for change in corrected.changes]
    [None, 0]
    """
    corrected, keep = labels.astype(np.int64), np.ones(len(labels), dtype=np.bool_)
    seen: set[int] = set()
    changes = []
    for each in sorted(decisions, key=lambda decision: decision.index):
        if not 0 <= each.index < len(labels):
            raise ValueError(f"decisions: index {each.index} is out of range for {len(labels)} labels")
        if each.index in seen:
            raise ValueError(f"decisions: index {each.index} occurs twice")
        seen.add(each.index)
        before = int(labels[each.index])
        if each.given != before:
            raise ValueError(f"decisions: example {each.index} has the label {before}, not {each.given}")
        if each.kind == "drop":
            keep[each.index] = False
            changes.append(Change(each.index, before, None, each.why))
        elif each.kind == "fix" and each.label != before:
            corrected[each.index] = each.label
            changes.append(Change(each.index, before, each.label, each.why))
    if not keep.any():
        raise ValueError(f"decisions: all {len(labels)} examples are dropped; keep at least one")
    return Corrected(corrected, keep, tuple(changes))


def log_csv(changes: Iterable[Change], sources: Sequence[str], class_names: Sequence[str]) -> str:
    """Format the log as CSV; `after` is empty for a dropped example.

    >>> print(log_csv([Change(1, 0, None, "decided by hand")], ["a.png", "b.png"], ["cat", "dog"]), end="")
    index,source,before,after,why
    1,"b.png","cat","","decided by hand"
    """
    rows = []
    for change in changes:
        after = "" if change.after is None else class_names[change.after]
        rows.append((change.index, sources[change.index], class_names[change.before], after, change.why))
    return csv_text(LOG_COLUMNS, rows, quoted=True)


@dataclass(frozen=True)
class Correction:
    """A folder of corrected labels and its files; `kept` is None if no list of examples is needed.

    `data` is the file or folder of corrected data, None if it was not the user's own; `options` are the fields of a run
    that trains on it.
    """

    folder: Path
    labels: str
    kept: str | None
    data_hash: str
    examples: int
    fixed: int
    dropped: int
    data: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def corrected(self, run: Run) -> Run:
        """Return the same run on the corrected labels; gathering its data fails if they have changed."""
        again = relabelled(run, (self.folder / self.labels).as_posix())
        if self.kept is not None:
            kept = str(Expression("kept", ((self.folder / self.kept).as_posix(),)))
            again = replace(again, imbalance=kept)
        return replace(again, data_hash=run.data_hash or self.data_hash[:12])

    def to_mapping(self) -> dict[str, Any]:
        """Return the content of correction.json except its origin."""
        hidden = ("folder", "data", "options")
        return {"format": FORMAT} | {name: value for name, value in vars(self).items() if name not in hidden}


def write_correction(
    folder: Path,
    corrected: Corrected,
    run: Run,
    material: Material,
    *,
    sources: Sequence[str],
    made_from: str,
) -> Correction:
    """Write corrected labels to a new folder.

    Args:
        folder: a new folder, or one that holds the same correction, complete or interrupted.
        corrected: of `material.train.labels`; each class with examples must keep at least one.
        run, material: the run and its data.
        sources: a name for each training example.
        made_from: the file of suspects or decisions, for the record.
    """
    check_correctable(run)
    _check_classes(corrected, material)
    labels = array_bytes(corrected.labels[corrected.keep])
    needs_list = not corrected.keep.all() or draws_examples(run)
    kept = array_bytes(_mask(corrected.keep, material)) if needs_list else None
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
    correction.corrected(run)  # raises before anything is written if the path is too long for a run
    _check_folder(correction)
    make_folder(folder)
    log = log_csv(corrected.changes, sources, material.dataset.class_names).encode()
    for name, content in ((correction.labels, labels), (correction.kept, kept), (LOG, log)):
        if name is not None and content is not None:
            _write(folder / name, content)
    written = write_data(folder, run, material, corrected.labels, corrected.keep)
    if written is not None:
        correction = replace(correction, data=written[0].name, options=written[1])
    write_json(folder / FILE, correction.to_mapping() | {"made_from": made_from, "run": run.to_mapping()})
    for unfinished in leftovers(folder):
        unfinished.unlink(missing_ok=True)
    return correction


def draws_examples(run: Run) -> bool:
    """Return whether the run's seed decides which examples it has, so that labels belong to one seed only.

    >>> run = Run(data="digits", net="linear", weighting="CCE", imbalance="long_tail(10)")
    >>> draws_examples(run), draws_examples(replace(run, imbalance="kept('kept.npy')"))
    (True, False)
    """
    return run.imbalance is not None and parse(run.imbalance).name != "kept"


def retrain(
    run: Run, root: Path, correction: Correction, corrected: Corrected, material: Material, *, run_one: RunOne = execute
) -> Path:
    """Train the run on the given and on the corrected labels, and compare both models on the same examples.

    Data with a test part are compared on it. Otherwise a stratified fifth of the examples is held out from both
    trainings, and both models are compared on it twice: with its given labels, and with its corrected ones, without
    dropped examples. Both runs have the same settings and seed; finished runs are reused.

    Args:
        run: the run on the given labels.
        root: directory containing runs.
        correction, corrected: of its training labels.
        material: its data.
        run_one: executes a run; (run, root) -> folder.

    Returns:
        the procedure's folder. Its result has, for `before` and `after`, accuracies, the hold-out that they refer to,
        the number of training examples, and their share of wrong labels (None where the truth is not known).
    """
    settings = {"labels": correction.labels, "kept": correction.kept}
    if len(material.dataset.test):
        journal = Journal("correction", run, root, settings, run_one)
        if journal.is_done:
            return journal.folder
        before, after = journal.run("before", run), journal.run("after", correction.corrected(run))
        return journal.finish({"before": _summary(before), "after": _summary(after)})
    journal = Journal("correction", run, root, settings | {"held": HELD}, run_one)
    if journal.is_done:
        return journal.folder
    held = np.zeros(len(corrected.labels), bool)
    held[stratified_split(material.train.labels, HELD, run.seed)[1]] = True
    judged, given = held & corrected.keep, material.train.labels
    result: dict[str, Any] = {}
    for role, labels, keep in (("before", given, ~held), ("after", corrected.labels, corrected.keep & ~held)):
        part = _on_part(run, correction, labels, keep, material)
        folder = journal.run(role, part)
        own = gather(part)
        predicted = part_probabilities(part, folder, own, material.train.take(np.flatnonzero(held))).argmax(axis=1)
        result[role] = _summary(folder) | {
            "holdout": "held-out fifth",
            "held": int(held.sum()),
            "given_labels": float((predicted == given[held]).mean()),
            "corrected_labels": float((predicted == corrected.labels[held])[judged[held]].mean()),
        }
    return journal.finish(result)


def _on_part(
    run: Run, correction: Correction, labels: NDArray[np.int64], keep: NDArray[np.bool_], material: Material
) -> Run:
    """Write labels and the list of the examples that are kept, and return the run on them."""
    content, mask = array_bytes(labels[keep].astype(np.int64)), array_bytes(_mask(keep, material))
    names = f"labels-{file_hash(content)}.npy", f"kept-{file_hash(mask)}.npy"
    place = correction.folder / COMPARISON
    make_folder(place)
    for name, each in zip(names, (content, mask), strict=True):
        _write(place / name, each)
    part = replace(correction, folder=place, labels=names[0], kept=names[1])
    return part.corrected(run)


def _summary(folder: Path) -> dict[str, Any]:
    header = read_header(folder)
    noise = header.details.get("noise")
    return {
        **final_and_best(folder),
        "holdout": (read_result(folder) or {}).get("holdout"),
        "examples": header.examples,
        "wrong_labels": None if noise is None else noise["measured"],
    }


def _mask(keep: NDArray[np.bool_], material: Material) -> NDArray[np.uint8]:
    """Return 1 for each row of the data set's training part that is kept; the run may use only some of them."""
    mask = np.zeros(len(material.dataset.train), dtype=np.uint8)
    mask[np.arange(len(mask)) if material.rows is None else material.rows] = keep
    return mask


def _check_classes(corrected: Corrected, material: Material) -> None:
    names = material.dataset.class_names
    before = np.bincount(material.train.labels, minlength=len(names))
    after = np.bincount(corrected.labels[corrected.keep], minlength=len(names))
    for name, had, has in zip(names, before.tolist(), after.tolist(), strict=True):
        if had and not has:
            raise ValueError(f"the correction leaves none of the {had} examples of class {name!r}; keep at least one")


def _check_folder(correction: Correction) -> None:
    path, folder = correction.folder / FILE, correction.folder
    files = {each.name for each in set(folder.iterdir()) - set(leftovers(folder))} if folder.is_dir() else set()
    # The labels are written first, under their own hash, so a folder with them is this correction, interrupted.
    interrupted = correction.labels in files and all(
        name in (correction.labels, correction.kept, LOG) or is_data(name) for name in files
    )
    if path.exists():
        written = read_json(path)
        if any(written.get(name) != value for name, value in correction.to_mapping().items()):
            raise ValueError(f"{folder} already holds another correction; give another folder")
    elif files and not interrupted:
        raise ValueError(f"{folder} is not empty and holds no correction; give another folder")


def _write(path: Path, content: bytes) -> None:
    replace_file(path, lambda file: file.write(content))
