"""`reweigh demo`: one net on labels of which 40 % are wrong, with cross entropy and with `Auto`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.errors import MissingExtraError
from reweigh.lab.cli.exits import Stop
from reweigh.lab.cli.options import Json
from reweigh.lab.cli.runner import accuracies, describe_row, execute_run, mean_std
from reweigh.lab.cli.suspects import quality, write_page
from reweigh.lab.cli.terminal import console, echo, print_json, print_stderr, progress, table
from reweigh.lab.spec import Run

if TYPE_CHECKING:
    from reweigh.lab.report import Group
    from reweigh.lab.run import Update
    from reweigh.lab.suspects.detect import RunSuspects

OBJECTIVES = ("CCE", "Auto")
PICTURES = 24


def demo_run(name: str, seed: int) -> Run:
    """Return a run of the demo: runs differ only in their loss and seed, and have no setting that favours one."""
    common = Run(
        data="digits",
        noise="symmetric",
        rate=0.4,
        net="mlp-256",
        iterations=800,
        evaluate_every=80,
        record_p=True,
        seed=seed,
        device="cpu",
        weighting="CCE",
    )
    return common if name == "CCE" else replace(common, weighting=None, method=name)


def demo(
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Runs with each loss.")] = 1,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Output directory.")] = Path("demo"),
    as_json: Json = False,
) -> None:
    """Train a net on digits with 40 % wrong labels, with cross entropy and with Auto, and find the wrong labels."""
    runs = [(name, demo_run(name, seed)) for seed in range(seeds) for name in OBJECTIVES]
    first = runs[0][1]
    print_stderr(
        f"data: scikit-learn's 8 x 8 digits, 1,200 for training with {first.rate:.0%} wrong labels ({first.noise}), "
        "597 with clean labels for testing\n"
        f"twice the same net and training: {first.net}, {first.iterations} iterations, defaults otherwise; "
        "once with cross entropy (CCE), once with Auto"
    )
    folders: dict[str, list[Path]] = {name: [] for name in OBJECTIVES}
    total = sum(run.iterations for _, run in runs)
    before = 0
    with _one_thread(), Stop() as stop, progress("it") as show:

        def watch(update: Update) -> None:
            state = "" if update.row is None else describe_row(update.row)
            show(before + update.step, total, line=update.note, state=state)

        for name, run in runs:
            folders[name].append(execute_run(run, output / "runs", stop, watch))
            before += run.iterations
            show(before, total, line=f"{name}, seed {run.seed}: done")
    from reweigh.lab.suspects import suspects_of

    results = {name: _accuracies(found) for name, found in folders.items()}
    found = suspects_of(folders["Auto"][0])
    files = _write(output, folders, found)
    truth = quality(found)
    if as_json:
        marks = {"issues": int(found.suspects.issue.sum()), **truth}
        print_json(
            {"runs": str(output / "runs"), "accuracy": results, "suspects": marks, "files": list(map(str, files))}
        )
        return
    echo("\ntest accuracy in per cent" + (", mean ± standard deviation over seeds" if seeds > 1 else ""))
    rows = [(name, *(mean_std(values) for values in scores.values())) for name, scores in results.items()]
    console().print(table(("", "final", "best of the run"), rows))
    marked, every = int(found.suspects.issue.sum()), len(found.suspects)
    echo(f"\n{truth['rate']:.1%} of {every:,} training labels are wrong; Auto marks {marked} labels:")
    echo(f"precision {truth['precision']:.1%}, recall {truth['recall']:.1%}")
    echo("\n" + "\n".join(map(str, (output / "runs", *files))))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread: for a net this small, more threads are slower."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _accuracies(folders: list[Path]) -> dict[str, list[float]]:
    from reweigh.lab.record import read_result

    final, best = zip(*(accuracies(read_result(folder) or {}) for folder in folders), strict=True)
    return {"final": list(final), "best": list(best)}


def _write(output: Path, folders: dict[str, list[Path]], found: RunSuspects) -> list[Path]:
    """Write the report on the runs, the page of suspects, and the picture if matplotlib is installed."""
    from reweigh.lab.record.files import replace_file
    from reweigh.lab.report import collect, group, report_page

    collected = collect([folder for several in folders.values() for folder in several])
    report, suspects, picture = output / "report.html", output / "suspects.html", output / "demo.png"
    page = report_page(collected, "Demo").encode()
    replace_file(report, lambda file: file.write(page))
    write_page(suspects, demo_run("Auto", 0), folders["Auto"][0], found.suspects)
    try:
        draw(group(collected.runs), found, picture)
    except MissingExtraError as error:
        print_stderr(f"{picture.name} not written: {error}")
        return [report, suspects]
    return [picture, report, suspects]


def draw(groups: list[Group], found: RunSuspects, path: Path) -> None:
    """Draw both learning curves, and the digits whose labels are the most suspicious."""
    import numpy as np

    from reweigh.lab.data.registry import load
    from reweigh.lab.figures.draw import draw_figures, save_figure
    from reweigh.lab.report.figures import dynamics

    drawn: Any = draw_figures([dynamics(groups)[0]], columns=2)
    images, suspects = np.asarray(load("digits").train.inputs).reshape(-1, 8, 8), found.suspects
    panel = drawn.add_subplot(1, 2, 2)
    panel.set_title("Most suspicious: given label → suggested label (green: right)", fontsize=11, pad=18)
    panel.set_axis_off()
    for place, i in enumerate(suspects.ranked()[:PICTURES].tolist()):
        row, column = divmod(place, 6)
        axes = panel.inset_axes((column / 6, 0.77 - row / 4, 0.15, 0.17))
        axes.imshow(images[suspects.index[i]], cmap="gray_r")
        axes.set_axis_off()
        given, suggested = (suspects.class_names[k] for k in (suspects.given[i], suspects.suggested[i]))
        right = found.clean is not None and found.clean[i] == suspects.suggested[i]
        axes.set_title(f"{given} → {suggested}", fontsize=10, color="#00795a" if right else "#b3261e")
    save_figure(drawn, path)
