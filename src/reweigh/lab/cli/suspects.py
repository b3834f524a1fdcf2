"""`reweigh suspects`: which training labels to look at, and how many are wrong."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.lab.cli.engine import carry_out, every_row
from reweigh.lab.cli.find import find_run_or_data, places_in
from reweigh.lab.cli.options import FOR_DATA, FOR_DATA_TAUGHT, Json, RunsRoot, with_fields
from reweigh.lab.cli.outputs import PAGE, check_output, files_of
from reweigh.lab.cli.progress import progress
from reweigh.lab.cli.stop import Stop
from reweigh.lab.cli.terminal import console, print_json, say, table
from reweigh.lab.spec import Run, describe

if TYPE_CHECKING:
    from reweigh.lab.suspects import RunSuspects
    from reweigh.labels import Suspects

SHOWN = 10
WIDTH = 60  # of a source in the table on the terminal


# `--method` is the score here; a run by a method of training is made with `reweigh train`.
@with_fields(
    [field for field in describe() if field.name not in ("data", "method")], defaults=FOR_DATA, taught=FOR_DATA_TAUGHT
)
def suspects(
    fields: dict[str, Any],
    source: Annotated[str, typer.Argument(help="A finished run (folder, name or hash), or data as for reweigh train.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write all examples as CSV, worst first.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML page to look at the worst of them and decide.")
    ] = None,
    method: Annotated[str, typer.Option(help="What to rank by: auto, final-p, mean-p, duel, aum or mixture.")] = "auto",
    folds: Annotated[
        int | None, typer.Option(min=2, help="Judge every example by a model that has not seen it: so many more runs.")
    ] = None,
    threshold_samples: Annotated[
        bool, typer.Option("--threshold-samples", help="Draw the line of aum by threshold samples: two more runs.")
    ] = False,
    runs: RunsRoot = Path("runs"),
    as_json: Json = False,
) -> None:
    """Find training labels that are probably wrong, worst first, and estimate how many there are.

    A finished run tells it by what it recorded (--record-p, --record-margins) and by its model. Given data, a robust
    run is trained first; every option of a run can be set, such as --net, --iterations, --label-column or --device.

    Example: reweigh suspects photos/ -o suspects.csv
    """
    from reweigh.lab.suspects import suspects_of, write_csv
    from reweigh.lab.suspects.table import COLUMNS
    from reweigh.labels import METHODS

    if method not in METHODS:
        raise ValueError(f"--method is {method!r}; expected one of {', '.join(METHODS)}")
    run, folder = find_run_or_data(source, runs, fields, anyway=("seed",))
    read = files_of(run)
    check_output("--output", output, (".csv",), read, begins=",".join(COLUMNS[:3]))
    check_output("--page", page, PAGE, read)
    seed = int(fields.get("seed", 0))
    with Stop() as stop, progress("it") as tell:

        def train(run: Run, root: Path) -> Path:
            if not (root / run.folder_name() / "result.json").exists():
                say(run.folder_name())
            return carry_out(run, root, stop, every_row(tell))

        folder = train(run, runs) if folder is None else folder
        found = suspects_of(
            folder,
            method=method,
            folds=folds,
            threshold_samples=threshold_samples,
            seed=seed,
            where=places_in(fields),
            run_one=train,
        )
    if output is not None:
        write_csv(output, found.suspects)
    if page is not None:
        _write_page(page, run, folder, found.suspects)
    if as_json:
        files = {"file": output and str(output), "page": page and str(page)}
        print_json(_as_mapping(found) | {"run": str(folder)} | files)
        return
    _show(found, folder)
    if output is not None:
        print(f"{output}: {len(found.suspects)} examples, the most suspicious first")
    if page is not None:
        root = [] if run.data_root is None else ["--data-root", run.data_root]
        then = ["reweigh", "correct", str(folder), *root, "--decisions", "decisions.csv", "-o", "corrected"]
        print(f"{page}: look at the worst of them and decide; then: {shlex.join(then)}")


def _write_page(path: Path, run: Run, folder: Path, found: Suspects) -> None:
    from reweigh.lab.record.files import replace_file
    from reweigh.lab.report.suspects import page_of_run

    content = page_of_run(run, found, folder=folder).encode()
    replace_file(path, lambda file: file.write(content))


def _as_mapping(found: RunSuspects) -> dict[str, Any]:
    suspects, noise = found.suspects, found.suspects.noise
    told = {
        "examples": len(suspects),
        "issues": int(suspects.issue.sum()),
        "how": suspects.description,
        "noise": None if noise is None else vars(noise),
        "worst": [_line(suspects, i) for i in suspects.ranked()[:SHOWN].tolist()],
    }
    return told if found.clean is None else told | {"truth": _against_truth(found)}


def _line(suspects: Suspects, i: int) -> dict[str, Any]:
    return {
        "index": int(suspects.index[i]),
        "source": suspects.sources[i],
        "given": suspects.class_names[suspects.given[i]],
        "suggested": suspects.class_names[suspects.suggested[i]],
        "score": float(suspects.score[i]),
        "issue": bool(suspects.issue[i]),
    }


def _against_truth(found: RunSuspects) -> dict[str, float]:
    """How good the list is, where it is known which labels are wrong."""
    import torch

    from reweigh.metrics import auroc, average_precision

    assert found.clean is not None
    wrong = found.suspects.given != found.clean
    score, positive, issue = torch.from_numpy(found.suspects.score), torch.from_numpy(wrong), found.suspects.issue
    return {
        "rate": float(wrong.mean()),
        "auroc": auroc(score, positive),
        "average_precision": average_precision(score, positive),
        "precision": float(wrong[issue].mean()) if issue.any() else float("nan"),
        "recall": float(issue[wrong].mean()) if wrong.any() else float("nan"),
    }


def _show(found: RunSuspects, folder: Path) -> None:
    from reweigh.lab.data.dataset import NOISY_HOLDOUT
    from reweigh.lab.record import read_header

    suspects, noise = found.suspects, found.suspects.noise
    print(folder)
    worst = [_line(suspects, i) for i in suspects.ranked()[:SHOWN].tolist()]
    rows = [
        (_short(w["source"]), w["given"], w["suggested"], "yes" if w["issue"] else "no", str(w["index"]), w["score"])
        for w in worst
    ]
    console().print(table(("example", "given", "suggested", "issue", "index", "score"), rows, left=4))
    print(f"{int(suspects.issue.sum()):,} of {len(suspects):,} labels called wrong, by {suspects.description}")
    if read_header(folder).details.get("holdout") == NOISY_HOLDOUT:
        print("not judged: the part of the data that was held out to test the model")
    if noise is not None:
        print(f"estimated share of wrong labels: {noise.rate:.1%} (95 % interval {noise.low:.1%} to {noise.high:.1%})")
        if noise.rate > 0.5:
            print("more than half: a model that has learnt little says so of good labels, too; see how it tests")
    if found.clean is not None:
        print(_in_truth(_against_truth(found), bool(suspects.issue.any())))


def _in_truth(truth: dict[str, float], any_issue: bool) -> str:
    """What `_against_truth` found, in a sentence without what cannot be told.

    >>> _in_truth({"rate": 0.0, "auroc": float("nan")}, True)
    'in truth no label is wrong'
    """
    if truth["rate"] == 0:
        return "in truth no label is wrong"
    told = f"in truth {truth['rate']:.1%} are wrong"
    if truth["rate"] < 1:
        told += f": AUROC {truth['auroc']:.4f}, average precision {truth['average_precision']:.4f}"
    if not any_issue:
        return f"{told}; none of them is called wrong"
    return (
        f"{told}; of those called wrong {truth['precision']:.1%} are, which is {truth['recall']:.1%} of all wrong ones"
    )


def _short(source: str) -> str:
    return source if len(source) <= WIDTH else f"{source[: WIDTH - 1]}…"
