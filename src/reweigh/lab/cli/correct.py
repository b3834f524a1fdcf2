"""`reweigh correct`: apply suggestions or decisions to labels, beside the data, and train again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.errors import DataError
from reweigh.lab.cli.engine import carry_out, every_row
from reweigh.lab.cli.find import find_run_or_data
from reweigh.lab.cli.options import FOR_DATA, FOR_DATA_TAUGHT, Json, RunsRoot, with_fields
from reweigh.lab.cli.outputs import check_outside, files_of
from reweigh.lab.cli.progress import progress
from reweigh.lab.cli.stop import Stop
from reweigh.lab.cli.terminal import console, print_json, say, table
from reweigh.lab.spec import Run, describe

if TYPE_CHECKING:
    from rich.console import RenderableType

    from reweigh.lab.run.material import Material
    from reweigh.lab.suspects.correction import Correction
    from reweigh.lab.suspects.decisions import Decision

# what a run must say of its data, that labels and examples fit each other
DATA_FIELDS = (
    *("data_root", "label_column", "text_column", "test_data", "text_vectors", "image_size"),
    *("noise", "imbalance", "data_hash"),
)


@with_fields(
    [field for field in describe() if field.name not in ("data", "method")], defaults=FOR_DATA, taught=FOR_DATA_TAUGHT
)
def correct(
    fields: dict[str, Any],
    source: Annotated[
        str, typer.Argument(help="What the suspects are of: a run (folder, name or hash), or data as for suspects.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="A new folder for the labels.")],
    suspects: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Apply the suggestions of reweigh suspects -o FILE.")
    ] = None,
    decisions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Apply decisions, as the page of suspects writes them.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Of the suggestions, those with at least this score; by default the issues.")
    ] = None,
    sure: Annotated[
        float, typer.Option(metavar="P", help="Of these, those whose suggested label has at least this probability.")
    ] = 0.0,
    drop: Annotated[bool, typer.Option("--drop", help="Leave the suspects out instead of relabelling them.")] = False,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Train on the corrected labels, nothing else changed, and compare.")
    ] = False,
    runs: RunsRoot = Path("runs"),
    as_json: Json = False,
) -> None:
    """Correct labels by a list of suspects or by decisions: into a new folder, with a log of every change.

    The data and their labels stay as they are. The folder holds the corrected labels for reweigh train, which examples
    were dropped, and changes.csv. With --retrain the model before and the model after stand side by side.

    Example: reweigh correct photos/ --decisions decisions.csv -o corrected --retrain
    """
    if (suspects is None) == (decisions is None):
        raise ValueError("give either --suspects FILE or --decisions FILE")
    if decisions is not None and (threshold is not None or sure or drop):
        raise ValueError("--threshold, --sure and --drop go with --suspects; decisions say themselves what to do")
    from reweigh.lab.procedures.label_correction import check_correctable
    from reweigh.lab.run.material import check_same_data, gather
    from reweigh.lab.suspects.correction import apply_decisions, write_correction
    from reweigh.lab.suspects.examples import sources_of

    run, root = _run_of(source, runs, fields)
    check_outside("--output", output, [Path(given) for given in files_of(run) if given is not None])
    check_correctable(run)
    material = gather(run)
    if (root / run.folder_name() / "run.json").exists():
        check_same_data(root / run.folder_name(), material)
    made = _decisions(material, suspects, decisions, threshold, sure, drop)
    correction = write_correction(
        output,
        apply_decisions(material.train.labels, made),
        run,
        material,
        sources=sources_of(run, material),
        made_from=str(suspects or decisions),
    )
    if not as_json:
        _show(correction, run)
    told = _retrain(run, root, correction) if retrain else None
    if as_json:
        print_json(_as_mapping(correction, run) | {"retrained": told})
    elif told is not None:
        print(told["folder"])
        console().print(comparison(told["before"], told["after"]))


def _run_of(source: str, root: Path, fields: dict[str, Any]) -> tuple[Run, Path]:
    """The run that `source` means, or that suspects are found with where it is data; and where it lies."""
    run, folder = find_run_or_data(source, root, fields)
    if folder is None:
        return run, root
    if folder.resolve().name != run.folder_name():
        raise DataError(f"{folder}: was renamed; its run is called {run.folder_name()}")
    return run, folder.parent


def _decisions(
    material: Material,
    suspects: Path | None,
    decisions: Path | None,
    threshold: float | None,
    sure: float,
    drop: bool,
) -> tuple[Decision, ...]:
    from reweigh.lab.suspects import read_csv
    from reweigh.lab.suspects.decisions import accept_suggestions, read_decisions

    labels, names = material.train.labels, material.dataset.class_names
    if decisions is not None:
        return read_decisions(decisions, labels, names)
    assert suspects is not None
    found = read_csv(suspects, names)
    for index, given in zip(found.index.tolist(), found.given.tolist(), strict=True):
        if index >= len(labels):
            raise DataError(f"{suspects}: index {index} is out of range for {len(labels)} examples: of other data?")
        if labels[index] != given:
            there, here = names[labels[index]], names[given]
            raise DataError(f"{suspects}: given is {here!r} at index {index}, but the data say {there!r}: of others?")
    return accept_suggestions(found, threshold=threshold, sure=sure, drop=drop)


def _retrain(run: Run, root: Path, correction: Correction) -> dict[str, Any]:
    from reweigh.lab.procedures import read_journal
    from reweigh.lab.suspects.correction import retrain

    with Stop() as stop, progress("it") as tell:

        def train(run: Run, root: Path) -> Path:
            if not (root / run.folder_name() / "result.json").exists():
                say(run.folder_name())
            return carry_out(run, root, stop, every_row(tell))

        folder = retrain(run, root, correction, run_one=train)
    account = read_journal(folder)
    return {"folder": str(folder), "runs": dict(account.runs), **(account.result or {})}


def comparison(before: Mapping[str, Any], after: Mapping[str, Any]) -> RenderableType:
    """Both models as a table; a hold-out with wrong labels is called so."""
    holdout = before.get("holdout") or "test"
    words = {
        "final": f"final {holdout} accuracy",
        "best": f"best {holdout} accuracy",
        "examples": "training examples",
        "wrong_labels": "wrong labels",
    }
    rows = [(told, before.get(name), after.get(name)) for name, told in words.items() if before.get(name) is not None]
    return table(("", "before", "after"), rows)


def _options(correction: Correction, run: Run) -> dict[str, str]:
    """The fields of a run that make it train on the correction, besides the data's name."""
    chosen = correction.corrected(run).to_mapping()
    return {name: str(chosen[name]) for name in DATA_FIELDS if name in chosen}


def _as_mapping(correction: Correction, run: Run) -> dict[str, Any]:
    from reweigh.lab.suspects.correction import LOG

    return {
        "folder": str(correction.folder),
        "labels": str(correction.folder / correction.labels),
        "kept": correction.kept and str(correction.folder / correction.kept),
        "log": str(correction.folder / LOG),
        "examples": correction.examples,
        "fixed": correction.fixed,
        "dropped": correction.dropped,
        "options": _options(correction, run),
    }


def _show(correction: Correction, run: Run) -> None:
    fixed, dropped, total = (f"{n:,}" for n in (correction.fixed, correction.dropped, correction.examples))
    print(f"{correction.folder}: {fixed} labels fixed and {dropped} examples dropped, of {total}")
    options = (f"--{name.replace('_', '-')} {quoted(value)}" for name, value in _options(correction, run).items())
    print(f"to train on them: reweigh train --data {quoted(run.data)} {' '.join(options)} ...")


def quoted(word: str) -> str:
    """A word for a shell, in double quotes where it holds single ones and nothing that they would let through.

    >>> print(quoted("digits"), quoted("given('a.npy')"), quoted("$HOME"))
    digits "given('a.npy')" '$HOME'
    """
    return f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else shlex.quote(word)
