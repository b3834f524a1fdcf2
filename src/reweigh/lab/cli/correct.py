"""`reweigh correct`: write corrected labels to a new folder, and optionally train on them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.errors import DataError
from reweigh.lab.cli.exits import Stop
from reweigh.lab.cli.options import DEFAULT_LOSS, EPOCHS, SUSPECTS_DEFAULTS, Json, RunsRoot, with_fields
from reweigh.lab.cli.paths import check_outside, find_run_or_data, input_files
from reweigh.lab.cli.runner import trainer
from reweigh.lab.cli.terminal import console, echo, print_json, progress, table
from reweigh.lab.spec import DATA_FIELDS, Run, describe

if TYPE_CHECKING:
    from rich.console import RenderableType

    from reweigh.lab.run.material import Material
    from reweigh.lab.suspects.correction import Corrected, Correction
    from reweigh.lab.suspects.decisions import Decision

# fields of a run that decide which examples the corrected labels belong to
LABEL_FIELDS = (*DATA_FIELDS, "noise", "imbalance")


@with_fields(
    [field for field in (*describe(), EPOCHS) if field.name not in ("data", "method")],
    defaults=SUSPECTS_DEFAULTS,
    loss=DEFAULT_LOSS,
)
def correct(
    fields: dict[str, Any],
    source: Annotated[str, typer.Argument(help="A run (directory, name or hash), or data, as for reweigh suspects.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="New directory for the corrected labels.")
    ],
    suspects: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Apply the suggested labels in FILE, written by reweigh suspects -o."),
    ] = None,
    decisions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Apply the decisions in FILE, downloaded from the page of suspects."),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Apply suggestions with at least this score; default: those marked as issues.")
    ] = None,
    sure: Annotated[
        float | None,
        typer.Option(metavar="P", help="Relabel if the suggestion has at least this probability (0.9), else drop."),
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Drop all of these examples, and relabel none.")] = False,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Train on the corrected labels with the same settings, and compare.")
    ] = False,
    runs: RunsRoot = Path("runs"),
    as_json: Json = False,
) -> None:
    """Write your data with corrected labels to a new directory, and leave the originals untouched.

    The directory contains a corrected table (the old labels in a column of their own), arrays, or a folder of links to
    the images, and changes.csv, a log of every change. Suspects are relabelled where the suggestion is sure, else
    dropped. With --retrain, models trained before and after the correction are compared on the same examples.

    Example: reweigh correct photos/ --decisions decisions.csv -o corrected --retrain
    """
    if (suspects is None) == (decisions is None):
        raise ValueError("give either --suspects FILE or --decisions FILE")
    if decisions is not None and (threshold is not None or sure is not None or drop):
        raise ValueError("--threshold, --sure and --drop require --suspects, not --decisions")
    from reweigh.lab.procedures.label_correction import check_correctable
    from reweigh.lab.run.material import check_same_data, gather
    from reweigh.lab.suspects.correction import apply_decisions, write_correction
    from reweigh.lab.suspects.examples import sources_of

    run, root = _run_of(source, runs, fields)
    file = suspects or decisions
    if file is not None and not file.exists():
        raise DataError(f"{file}: no such file")
    check_outside("--output", output, [Path(file) for file in input_files(run) if file is not None])
    check_correctable(run)
    material = gather(run)
    if (root / run.folder_name() / "run.json").exists():
        check_same_data(root / run.folder_name(), material)
    chosen = _decisions(material, suspects, decisions, threshold, sure, drop)
    corrected = apply_decisions(material.train.labels, chosen)
    correction = write_correction(
        output,
        corrected,
        run,
        material,
        sources=sources_of(run, material),
        made_from=str(suspects or decisions),
    )
    if not as_json:
        _show(correction, run)
    retrained = _retrain(run, root, correction, corrected, material) if retrain else None
    if as_json:
        print_json(_as_mapping(correction, run) | {"retrained": retrained})
    elif retrained is not None:
        echo(retrained["folder"])
        console().print(comparison(retrained["before"], retrained["after"]))


def _run_of(source: str, root: Path, fields: dict[str, Any]) -> tuple[Run, Path]:
    """Return the run that `source` means, or the one that finds suspects in data, and the folder that contains it."""
    run, folder = find_run_or_data(source, root, fields)
    if folder is None:
        return run, root
    if folder.resolve().name != run.folder_name():
        raise DataError(f"{folder}: was renamed; rename it back to {run.folder_name()}")
    return run, folder.parent


def _decisions(
    material: Material,
    suspects: Path | None,
    decisions: Path | None,
    threshold: float | None,
    sure: float | None,
    drop: bool,
) -> tuple[Decision, ...]:
    from reweigh.lab.suspects import read_csv
    from reweigh.lab.suspects.decisions import accept_suggestions, read_decisions
    from reweigh.labels.verdicts import SURE

    labels, names = material.train.labels, material.dataset.class_names
    if decisions is not None:
        return read_decisions(decisions, labels, names)
    assert suspects is not None
    found = read_csv(suspects, names)
    for index, given in zip(found.index.tolist(), found.given.tolist(), strict=True):
        if index >= len(labels):
            raise DataError(
                f"{suspects}: index {index} is out of range for {len(labels)} examples; is it for other data?"
            )
        if labels[index] != given:
            label, listed = names[labels[index]], names[given]
            raise DataError(f"{suspects}: label at index {index} is {listed!r}, but {label!r} in the data; other data?")
    return accept_suggestions(found, threshold=threshold, sure=SURE if sure is None else sure, drop=drop)


def _retrain(run: Run, root: Path, correction: Correction, corrected: Corrected, material: Material) -> dict[str, Any]:
    from reweigh.lab.procedures import read_journal
    from reweigh.lab.suspects.correction import retrain

    with Stop() as stop, progress("it") as show:
        folder = retrain(run, root, correction, corrected, material, run_one=trainer(stop, show))
    account = read_journal(folder)
    return {"folder": str(folder), "runs": dict(account.runs), **(account.result or {})}


def comparison(before: Mapping[str, Any], after: Mapping[str, Any]) -> RenderableType:
    """Return the table that compares both models."""
    holdout = before.get("holdout") or "test"
    titles = {
        "final": f"final {holdout} accuracy",
        "best": f"best {holdout} accuracy",
        "given_labels": f"accuracy on {before.get('held', 0):,} held-out examples, given labels",
        "corrected_labels": f"accuracy on {before.get('held', 0):,} held-out examples, corrected labels",
        "examples": "training examples",
        "wrong_labels": "wrong labels",
    }
    rows = [
        (title, before.get(name), after.get(name)) for name, title in titles.items() if before.get(name) is not None
    ]
    return table(("", "before", "after"), rows)


def _options(correction: Correction, run: Run) -> dict[str, str]:
    """Return the fields, besides `data`, by which a run trains on the corrected labels."""
    if correction.data is not None:
        return dict(correction.options)
    chosen = correction.corrected(run).to_mapping()
    return {name: str(chosen[name]) for name in LABEL_FIELDS if name in chosen}


def _data(correction: Correction, run: Run) -> str:
    return run.data if correction.data is None else (correction.folder / correction.data).as_posix()


def _as_mapping(correction: Correction, run: Run) -> dict[str, Any]:
    from reweigh.lab.suspects.correction import LOG

    return {
        "folder": str(correction.folder),
        "labels": str(correction.folder / correction.labels),
        "kept": correction.kept and str(correction.folder / correction.kept),
        "data": _data(correction, run),
        "log": str(correction.folder / LOG),
        "examples": correction.examples,
        "fixed": correction.fixed,
        "dropped": correction.dropped,
        "options": _options(correction, run),
    }


def _show(correction: Correction, run: Run) -> None:
    fixed, dropped, total = (f"{n:,}" for n in (correction.fixed, correction.dropped, correction.examples))
    echo(f"{correction.folder}: {fixed} labels fixed and {dropped} examples dropped, of {total}")
    if correction.data is not None:
        echo(f"{correction.folder / correction.data}: your data with corrected labels")
    options = (f"--{name.replace('_', '-')} {quoted(value)}" for name, value in _options(correction, run).items())
    words = ["reweigh train --data", quoted(_data(correction, run)), *options]
    echo(f"to train on the corrected labels: {' '.join(words)}")


def quoted(word: str) -> str:
    """Quote a word for a shell; in double quotes if it contains single quotes and nothing special.

    >>> print(quoted("digits"), quoted("given('a.npy')"), quoted("$HOME"))
    digits "given('a.npy')" '$HOME'
    """
    return f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else shlex.quote(word)
