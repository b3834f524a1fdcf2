"""`reweigh retrieve`: evaluate a model on person re-identification."""

from __future__ import annotations

import io
import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from reweigh.errors import DataError
from reweigh.lab.cli.options import Json, RunsRoot
from reweigh.lab.cli.paths import PAGE, check_output, find_model
from reweigh.lab.cli.terminal import console, echo, print_json, progress, table
from reweigh.lab.csv_text import csv_text

if TYPE_CHECKING:
    from reweigh.lab.retrieval.retrieve import RetrievalResult


VIDEOS = ("mars", "tracklets")
_LOCAL = (
    "data",
    "data_root",
    "test_data",
    "init_file",
    "device",
    "workers",
)  # fields of a run that name places on this machine


class FusionName(str, Enum):
    """How the frames of a tracklet are pooled into one feature; snippets are compared as in CAE."""

    mean = "mean"
    max = "max"
    confidence = "confidence"
    snippets = "snippets"


class RuleName(str, Enum):
    """Evaluation rule."""

    official = "official"
    python = "python"


def retrieve(
    model: Annotated[str, typer.Argument(metavar="RUN", help="A run trained on people, or its model.")],
    data: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it at run time
        typer.Option(metavar="mars:DIR|DIR|TABLE", help="MARS or your own tracklets; default: those of RUN."),
    ] = None,
    fusion: Annotated[FusionName, typer.Option(help="How frames are pooled into one feature.")] = FusionName.mean,
    rule: Annotated[
        RuleName, typer.Option(help="Evaluation rule: MARS's own, or that of most Python programs.")
    ] = RuleName.official,
    page: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Write an HTML page with queries and their rankings."),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the scores of all queries (.csv) or the features (.npz)."
        ),
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="Use the best model instead of the final one.")] = False,
    cache: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="DIR", help="Feature cache; default: in the user's cache directory."),
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Number of processes that decode frames.")] = 0,
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda, ...")] = "auto",
    runs: RunsRoot = Path("runs"),
    as_json: Json = False,
) -> None:
    """Evaluate person re-identification: extract features, rank the gallery for every query, score the rankings.

    Prints CMC at ranks 1, 5, 10 and 20, and mAP. Features are cached, so that an interrupted command resumes, and
    another rule or page needs no second extraction.

    Example: reweigh retrieve RUN --data mars:data/MARS --page page.html
    """
    from reweigh.lab.data.tracklets import index_of
    from reweigh.lab.retrieval.retrieve import retrieve as find
    from reweigh.lab.run.machine import device_of
    from reweigh.lab.spec import Run

    folder = find_model(model, runs)
    kind, root = find_tracklets(data, folder)
    check_output("--output", output, (".csv", ".npz"), [root])
    check_output("--page", page, PAGE, [root])
    index = index_of(kind, root)
    place = device_of(Run(data="tracklets", net="linear", weighting="CCE", device=device))
    with progress("frames") as show:
        found = find(
            folder,
            index,
            fusion.value,
            rule.value,
            cache=cache or user_cache(),
            which="best" if best else "final",
            workers=workers,
            device=place,
            progress=show,
        )
    made = {"model": str(folder), "data": f"{kind}:{root}", "fusion": fusion.value, "rule": rule.value}
    if output is not None:
        _write(output, found)
    if page is not None:
        _write_page(page, found, folder, made)
    _print_scores(found, made | {"file": output and str(output), "page": page and str(page)}, as_json)


def find_tracklets(data: str | None, model: Path) -> tuple[str, Path]:
    """Return the kind and folder of the tracklets that `data` names; by default those of the model's run."""
    from reweigh.lab.data.registry import folder_of, with_root
    from reweigh.lab.train.model import load_model

    if data is None:
        run = load_model(model)[1].run
        kind, own = ("", None) if run is None else with_root(run.data, run.data_root)
        if kind not in VIDEOS:
            raise DataError(f"{model}: not trained on tracklets; set --data")
        return kind, folder_of(kind, own)
    if data.partition(":")[0] in VIDEOS:
        kind, _, folder = data.partition(":")
        return kind, folder_of(kind, folder or None)
    return "tracklets", Path(data)


def user_cache() -> Path:
    """Return the default directory of the feature cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reweigh" / "features"


def _print_scores(found: RetrievalResult, made: dict[str, Any], as_json: bool) -> None:
    from reweigh.lab.report.retrieval import headline

    scores = found.scores
    if as_json:
        counts = {"queries": len(found.queries), "matched": int(scores.valid.sum()), "gallery": len(found.gallery)}
        print_json(made | counts | {"mAP": scores.mean_ap, "cmc": scores.cmc})
        return
    named = headline(scores)
    console().print(table([name for name, _ in named], [[f"{100 * value:.2f} %" for _, value in named]], left=0))
    for path in filter(None, (made["file"], made["page"])):
        echo(path)


def _write(path: Path, found: RetrievalResult) -> None:
    """Write the scores of all queries as CSV, or the features of all tracklets as NPZ."""
    from reweigh.lab.record.files import replace_file

    content = as_csv(found).encode() if path.suffix.lower() == ".csv" else _as_npz(found)
    replace_file(path, lambda file: file.write(content))


def as_csv(found: RetrievalResult) -> str:
    """Return a CSV line for each query: its person, its scores and its nearest tracklet; tracklets count from 1."""
    columns = ["query", "tracklet", "person", "camera", "ap", "first_hit", "matches", "nearest", "right"]
    columns += ["person_name", "tracklet_name", "nearest_person_name", "nearest_tracklet_name"]
    lines: list[list[object]] = []
    scores, (rows, _, right), test = found.scores, found.ranking, found.test
    for i, row in enumerate(found.queries.tolist()):
        hit = int(found.gallery[rows[i, 0]]) if rows[i, 0] >= 0 else None
        nearest = ("", "", "") if hit is None else (hit + 1, test.people[hit], test.names[hit])
        who = (row + 1, test.persons[row], test.cameras[row])
        scored = (f"{scores.average_precision[i]:.6g}", scores.first_hit[i] or "", scores.matches[i])
        names = (test.people[row], test.names[row], *nearest[1:])
        lines.append([i + 1, *who, *scored, nearest[0], int(right[i, 0]), *names])
    return csv_text(columns, lines)


def _as_npz(found: RetrievalResult) -> bytes:
    import numpy as np

    if found.features is None:
        raise ValueError(
            "--output .npz: with snippets a tracklet has no single feature; write a .csv of scores instead"
        )
    raw, test = io.BytesIO(), found.test
    np.savez(
        raw,
        features=found.features,
        persons=test.persons,
        cameras=test.cameras,
        queries=found.queries,
        person_names=np.array(test.people),  # as text arrays, which need no pickling
        tracklet_names=np.array(test.names),
    )
    return raw.getvalue()


def _write_page(path: Path, found: RetrievalResult, model: Path, made: dict[str, str]) -> None:
    from reweigh.lab.record.files import replace_file
    from reweigh.lab.report.retrieval import retrieval_page
    from reweigh.lab.train.model import load_model

    # names only: the page may be shared, and should not show the directories of this machine
    provenance: dict[str, Any] = {**made, "model": model.resolve().parent.name, "data": Path(made["data"]).name}
    provenance |= {"tracklets": f"{len(found.test):,}", "frames": f"{int(found.test.lengths.sum()):,}"}
    if (run := load_model(model)[1].run) is not None:
        provenance |= {"trained on": Path(run.data).name}
        provenance |= {key.replace("_", " "): value for key, value in run.to_mapping().items() if key not in _LOCAL}
    html = retrieval_page(found, "Retrieval", provenance)
    replace_file(path, lambda file: file.write(html.encode()))
