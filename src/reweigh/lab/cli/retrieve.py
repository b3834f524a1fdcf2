"""`reweigh retrieve`: find the people of a test set again with a trained model, and score how well that goes."""

from __future__ import annotations

import csv
import io
import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from reweigh.errors import DataError
from reweigh.lab.cli.find import find_model
from reweigh.lab.cli.options import Json, RunsRoot
from reweigh.lab.cli.outputs import PAGE, check_output
from reweigh.lab.cli.progress import progress
from reweigh.lab.cli.terminal import console, print_json, table

if TYPE_CHECKING:
    from reweigh.lab.retrieval.retrieve import RetrievalResult


VIDEOS = ("mars", "tracklets")
_PLACES = ("data", "data_root", "test_data", "init_file", "device", "workers")  # fields of a run with folders in them


class FusionName(str, Enum):
    """How the frames of a tracklet become one feature; snippets are compared as CAE does."""

    mean = "mean"
    max = "max"
    confidence = "confidence"
    snippets = "snippets"


class RuleName(str, Enum):
    """How rankings are scored."""

    official = "official"
    python = "python"


def retrieve(
    model: Annotated[str, typer.Argument(metavar="RUN", help="A run that was trained on people, or its model.")],
    data: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it at run time
        typer.Option(metavar="mars:FOLDER|FOLDER|TABLE", help="MARS or your own tracklets; by default those of RUN."),
    ] = None,
    fusion: Annotated[FusionName, typer.Option(help="How frames become one feature.")] = FusionName.mean,
    rule: Annotated[RuleName, typer.Option(help="How rankings are scored.")] = RuleName.official,
    page: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Write an HTML page with the queries and what was found."),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the scores of all queries (.csv) or features (.npz)."
        ),
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="The best model instead of the final one.")] = False,
    cache: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FOLDER", help="Where features are kept; by default in the user's cache."),
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode frames.")] = 0,
    device: Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda, ...")] = "auto",
    runs: RunsRoot = Path("runs"),
    as_json: Json = False,
) -> None:
    """Retrieve people: extract a feature of every tracklet, rank the gallery for every query, score the rankings.

    Prints CMC at ranks 1, 5, 10 and 20, and mAP. Features are kept: stopped and started again, it goes on where it
    was, and another rule or page costs nothing.

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
    with progress("frames") as tell:
        found = find(
            folder,
            index,
            fusion.value,
            rule.value,
            cache=cache or user_cache(),
            which="best" if best else "final",
            workers=workers,
            device=place,
            progress=tell,
        )
    made = {"model": str(folder), "data": f"{kind}:{root}", "fusion": fusion.value, "rule": rule.value}
    if output is not None:
        _write(output, found)
    if page is not None:
        _write_page(page, found, folder, made)
    _tell(found, made | {"file": output and str(output), "page": page and str(page)}, as_json)


def find_tracklets(data: str | None, model: Path) -> tuple[str, Path]:
    """The kind of tracklets that `data` names, by default those of the run that made the model, and where they lie."""
    from reweigh.lab.data.registry import folder_of, with_root
    from reweigh.lab.train.model import load_model

    if data is None:
        run = load_model(model)[1].run
        kind, own = ("", None) if run is None else with_root(run.data, run.data_root)
        if kind not in VIDEOS:
            raise DataError(f"{model}: was not trained on tracklets; say with --data what to search")
        return kind, folder_of(kind, own)
    if data.partition(":")[0] in VIDEOS:
        kind, _, given = data.partition(":")
        return kind, folder_of(kind, given or None)
    return "tracklets", Path(data)


def user_cache() -> Path:
    """Where features lie if nothing else is said."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reweigh" / "features"


def _tell(found: RetrievalResult, made: dict[str, Any], as_json: bool) -> None:
    from reweigh.lab.report.retrieval import headline

    scores = found.scores
    if as_json:
        counts = {"queries": len(found.queries), "matched": int(scores.valid.sum()), "gallery": len(found.gallery)}
        print_json(made | counts | {"mAP": scores.mean_ap, "cmc": scores.cmc})
        return
    told = headline(scores)
    console().print(table([name for name, _ in told], [[f"{100 * value:.2f} %" for _, value in told]], left=0))
    for path in filter(None, (made["file"], made["page"])):
        print(path)


def _write(path: Path, found: RetrievalResult) -> None:
    """A line for each query, or the features of all tracklets."""
    from reweigh.lab.record.files import replace_file

    content = as_csv(found).encode() if path.suffix.lower() == ".csv" else _as_npz(found)
    replace_file(path, lambda file: file.write(content))


def as_csv(found: RetrievalResult) -> str:
    """A line for each query: who it is, its scores, and the tracklet found first; tracklets are counted from 1.

    At the end what the person and both tracklets are called, and who was found.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    columns = ["query", "tracklet", "person", "camera", "ap", "first_hit", "matches", "nearest", "right"]
    writer.writerow([*columns, "person_name", "tracklet_name", "nearest_person_name", "nearest_tracklet_name"])
    scores, (rows, _, right), test = found.scores, found.ranking, found.test
    for i, row in enumerate(found.queries.tolist()):
        hit = int(found.gallery[rows[i, 0]]) if rows[i, 0] >= 0 else None
        nearest = ("", "", "") if hit is None else (hit + 1, test.people[hit], test.names[hit])
        who = (row + 1, test.persons[row], test.cameras[row])
        scored = (f"{scores.average_precision[i]:.6g}", scores.first_hit[i] or "", scores.matches[i])
        names = (test.people[row], test.names[row], *nearest[1:])
        writer.writerow([i + 1, *who, *scored, nearest[0], int(right[i, 0]), *names])
    return text.getvalue()


def _as_npz(found: RetrievalResult) -> bytes:
    import numpy as np

    if found.features is None:
        raise ValueError("--output .npz: snippets have no one feature for a tracklet; take a .csv for the scores")
    raw, test = io.BytesIO(), found.test
    np.savez(
        raw,
        features=found.features,
        persons=test.persons,
        cameras=test.cameras,
        queries=found.queries,
        person_names=np.array(test.people),  # of text, which needs no pickling
        tracklet_names=np.array(test.names),
    )
    return raw.getvalue()


def _write_page(path: Path, found: RetrievalResult, model: Path, made: dict[str, str]) -> None:
    from reweigh.lab.record.files import replace_file
    from reweigh.lab.report.retrieval import retrieval_page
    from reweigh.lab.train.model import load_model

    # only names: a page may be shown to others, whom the folders of this machine are no business of
    told: dict[str, Any] = {**made, "model": model.resolve().parent.name, "data": Path(made["data"]).name}
    told |= {"tracklets": f"{len(found.test):,}", "frames": f"{int(found.test.lengths.sum()):,}"}
    if (run := load_model(model)[1].run) is not None:
        told |= {"trained on": Path(run.data).name}
        told |= {key.replace("_", " "): value for key, value in run.to_mapping().items() if key not in _PLACES}
    html = retrieval_page(found, "Retrieval", told)
    replace_file(path, lambda file: file.write(html.encode()))
