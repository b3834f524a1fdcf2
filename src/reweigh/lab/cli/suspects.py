"""`reweigh suspects`: find training labels that are probably wrong, and estimate how many are."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.lab.cli.exits import Stop
from reweigh.lab.cli.options import DEFAULT_LOSS, EPOCHS, SUSPECTS_DEFAULTS, Json, RunsRoot, with_fields
from reweigh.lab.cli.paths import PAGE, check_output, execution_fields, find_run_or_data, input_files
from reweigh.lab.cli.runner import check_converged, trainer
from reweigh.lab.cli.terminal import console, echo, print_json, progress, table
from reweigh.lab.spec import Run, describe

if TYPE_CHECKING:
    from reweigh.lab.suspects import RunSuspects
    from reweigh.labels import Suspects

SHOWN = 10
CONFUSIONS = 20  # in --json
WIDTH = 60  # of the column "example"


# accepts every training option except --method, which is the score here
@with_fields(
    [field for field in (*describe(), EPOCHS) if field.name not in ("data", "method")],
    defaults=SUSPECTS_DEFAULTS,
    loss=DEFAULT_LOSS,
)
def suspects(
    fields: dict[str, Any],
    source: Annotated[
        str, typer.Argument(help="A finished run (directory, name or hash), or data as for reweigh train.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write all examples as CSV, most suspicious first."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML page to review the most suspicious examples.")
    ] = None,
    method: Annotated[
        str, typer.Option(help="Score to rank by: auto, posterior, final-p, mean-p, duel, aum or mixture.")
    ] = "auto",
    folds: Annotated[
        int | None,
        typer.Option(
            min=2, help="Score each example by a model that was not trained on it; trains N extra models.", metavar="N"
        ),
    ] = None,
    threshold_samples: Annotated[
        bool,
        typer.Option(
            "--threshold-samples", help="Set the threshold of aum by threshold samples; trains 2 extra models."
        ),
    ] = False,
    runs: RunsRoot = Path("runs"),
    as_json: Json = False,
) -> None:
    """Find training labels that are probably wrong, and estimate how many there are.

    For a finished run, labels are scored by its model and by what it recorded (--record-p, --record-margins). For data,
    a robust model is trained first; all training options apply, such as --net, --iterations, --label-column, --device.

    Example: reweigh suspects photos/ -o suspects.csv
    """
    from reweigh.lab.record import read_result
    from reweigh.lab.suspects import suspects_of, write_csv
    from reweigh.lab.suspects.detect import SCORES
    from reweigh.lab.suspects.table import COLUMNS

    if method not in SCORES:
        raise ValueError(f"--method is {method!r}; expected one of {', '.join(SCORES)}")
    run, folder = find_run_or_data(source, runs, fields, allowed=("seed",))
    read = input_files(run)
    check_output("--output", output, (".csv",), read, begins=",".join(COLUMNS[:3]))
    check_output("--page", page, PAGE, read)
    seed = int(fields.get("seed", 0))
    with Stop() as stop, progress("it") as show:
        train = trainer(stop, show)
        if folder is None:
            folder = train(run, runs)
            check_converged([read_result(folder) or {}])
        found = suspects_of(
            folder,
            method=method,
            folds=folds,
            threshold_samples=threshold_samples,
            seed=seed,
            where=execution_fields(fields),
            run_one=train,
        )
    if output is not None:
        write_csv(output, found.suspects)
    if page is not None:
        write_page(page, run, folder, found.suspects)
    if as_json:
        files = {"file": output and str(output), "page": page and str(page)}
        print_json(_as_mapping(found) | {"run": str(folder)} | files)
        return
    _show(found, folder)
    if output is not None:
        echo(f"{output}: {len(found.suspects)} examples, most suspicious first")
    if page is not None:
        root = [] if run.data_root is None else ["--data-root", run.data_root]
        then = ["reweigh", "correct", str(folder), *root, "--decisions", "decisions.csv", "-o", "corrected"]
        echo(f"{page}: review the most suspicious examples, then run: {shlex.join(then)}")


def write_page(path: Path, run: Run, folder: Path, found: Suspects) -> None:
    """Write the page to review suspects of a run."""
    from reweigh.lab.record.files import replace_file
    from reweigh.lab.report.suspects import page_of_run

    content = page_of_run(run, found, folder=folder).encode()
    replace_file(path, lambda file: file.write(content))


def _as_mapping(found: RunSuspects) -> dict[str, Any]:
    from reweigh.lab.report.suspects import confusions

    suspects, noise = found.suspects, found.suspects.noise
    mapping = {
        "duplicates": [rows.tolist() for rows in found.duplicates],
        "confusions": [
            {"given": suspects.class_names[a], "suggested": suspects.class_names[b], "issues": count, "of": of}
            for a, b, count, of in confusions(suspects, CONFUSIONS)
        ],
        "examples": len(suspects),
        "issues": int(suspects.issue.sum()),
        "how": suspects.description,
        "noise": None if noise is None else vars(noise),
        "worst": [_line(suspects, i) for i in suspects.ranked()[:SHOWN].tolist()],
    }
    return mapping if found.clean is None else mapping | {"truth": quality(found)}


def _line(suspects: Suspects, i: int) -> dict[str, Any]:
    return {
        "index": int(suspects.index[i]),
        "source": suspects.sources[i],
        "given": suspects.class_names[suspects.given[i]],
        "suggested": suspects.class_names[suspects.suggested[i]],
        "score": float(suspects.score[i]),
        "issue": bool(suspects.issue[i]),
    }


def quality(found: RunSuspects) -> dict[str, float]:
    """Return the quality of the list, for data whose true labels are known."""
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
    from reweigh.lab.report.suspects import confusions

    suspects, noise = found.suspects, found.suspects.noise
    echo(folder)
    worst = [_line(suspects, i) for i in suspects.ranked()[:SHOWN].tolist()]
    rows = [
        (_short(w["source"]), w["given"], w["suggested"], "yes" if w["issue"] else "no", str(w["index"]), w["score"])
        for w in worst
    ]
    console().print(table(("example", "given", "suggested", "issue", "index", "score"), rows, left=4))
    echo(f"{int(suspects.issue.sum()):,} of {len(suspects):,} labels are suspects; scored by {suspects.description}")
    if found.duplicates:
        count = sum(map(len, found.duplicates))
        echo(f"{count} examples are identical to others with a different label; they are listed first")
    for given, suggested, count, of in confusions(suspects, SHOWN // 3):
        before, after = suspects.class_names[given], suspects.class_names[suggested]
        echo(f"of those labelled {before}, an estimated {count / of:.0%} are {after} ({count} of {of:,})")
    header = read_header(folder)
    if header.details.get("holdout") == NOISY_HOLDOUT and header.run.holdout > 0:
        echo("not scored: the examples held out to test the model")
    if noise is not None:
        echo(f"estimated noise rate: {noise.rate:.1%} (95 % interval {noise.low:.1%} to {noise.high:.1%})")
        if noise.rate > 0.5:
            echo("more than half: check the model's test accuracy; a poor model also scores clean labels as wrong")
    if found.clean is not None:
        echo(_quality_line(quality(found), bool(suspects.issue.any())))


def _quality_line(truth: dict[str, float], any_issue: bool) -> str:
    """Return the quality of the list in a line, without the measures that are undefined.

    >>> _quality_line({"rate": 0.0, "auroc": float("nan")}, True)
    'true noise rate: 0.0%'
    """
    line = f"true noise rate: {truth['rate']:.1%}"
    if truth["rate"] == 0:
        return line
    if truth["rate"] < 1:
        line += f"; AUROC {truth['auroc']:.4f}, average precision {truth['average_precision']:.4f}"
    return f"{line}; precision {truth['precision']:.1%}, recall {truth['recall']:.1%}" if any_issue else line


def _short(source: str) -> str:
    return source if len(source) <= WIDTH else f"{source[: WIDTH - 1]}…"
