"""`reweigh demo`: three losses on labels of which 40 % are wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reweigh.errors import MissingExtraError
from reweigh.lab.cli.exits import Stop
from reweigh.lab.cli.options import Json
from reweigh.lab.cli.runner import describe_row, execute_run, mean_std
from reweigh.lab.cli.terminal import console, print_json, print_stderr, progress, table
from reweigh.lab.spec import Run, parse

if TYPE_CHECKING:
    from reweigh.lab.figures.curves import Curve
    from reweigh.lab.run import Update

WEIGHTINGS = ("CCE", "GCE(0.7)", "DM(0.5, 8)")


def demo_run(weighting: str, seed: int) -> Run:
    """Return a run of the demo; runs differ only in weighting and seed."""
    return Run(
        data="digits",
        noise="symmetric",
        rate=0.4,
        net="mlp-256",
        weighting=weighting,
        normalise="unit",  # on one scale, one learning rate suits all; CCE stays cross entropy
        iterations=800,
        batch_size=128,
        lr=0.03,
        weight_decay=5e-4,
        evaluate_every=80,
        seed=seed,
        device="cpu",
    )


def demo(
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Runs of each loss.")] = 3,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Output directory.")] = Path("demo"),
    as_json: Json = False,
) -> None:
    """Train CCE, GCE and DM on digits with 40 % wrong labels, and compare them on clean test labels."""
    runs = [(weighting, demo_run(weighting, seed)) for weighting in WEIGHTINGS for seed in range(seeds)]
    first = runs[0][1]
    print_stderr(
        f"data: scikit-learn's 8 x 8 digits, 1,200 for training with {first.rate:.0%} wrong labels ({first.noise}), "
        "597 with clean labels for testing\n"
        f"all losses: {first.net}, {first.iterations} iterations of {first.batch_size}, {first.optimiser} "
        f"{first.momentum}, lr {first.lr} ({first.schedule}), weight decay {first.weight_decay:g}, "
        f"w divided by its integral, {seeds} seeds"
    )
    folders: dict[str, list[Path]] = {weighting: [] for weighting in WEIGHTINGS}
    total = sum(run.iterations for _, run in runs)
    before = 0
    with _one_thread(), Stop() as stop, progress("it") as show:

        def watch(update: Update) -> None:
            state = "" if update.row is None else describe_row(update.row)
            show(before + update.step, total, line=update.note, state=state)

        for weighting, run in runs:
            folders[weighting].append(execute_run(run, output / "runs", stop, watch))
            before += run.iterations
            show(before, total, line=f"{weighting}, seed {run.seed}: done")
    results = {weighting: _accuracies(found) for weighting, found in folders.items()}
    figures = _draw(output)
    if as_json:
        print_json({"runs": str(output / "runs"), "accuracy": results, "figures": list(map(str, figures))})
        return
    rows = [(weighting, *(mean_std(values) for values in found.values())) for weighting, found in results.items()]
    print("\ntest accuracy in per cent, mean ± standard deviation over seeds")
    console().print(table(("", "final", "best of each run"), rows))
    print("an illustration, not a benchmark: the settings were chosen for it, on this test set")
    print("\n" + "\n".join(map(str, (output / "runs", *figures))))


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


def _accuracies(folders: Sequence[Path]) -> dict[str, list[float]]:
    from reweigh.lab.record import read_result

    results = [read_result(folder) or {} for folder in folders]
    return {which: [float(result[which]["test_accuracy"]) for result in results] for which in ("final", "best")}


def _draw(output: Path) -> list[Path]:
    """Draw the emphasis densities as SVG, and as PNG if matplotlib is installed."""
    from reweigh.lab.figures.curves import curve_of
    from reweigh.lab.figures.draw_curves import write_curves
    from reweigh.lab.objectives import weighting_from

    curves: list[Curve] = [curve_of(weighting_from(parse(text)), text) for text in WEIGHTINGS]
    written: list[Path] = []
    for name in ("emphasis.svg", "emphasis.png"):
        try:
            write_curves(curves, output / name)
            written.append(output / name)
        except MissingExtraError as error:
            print_stderr(f"{name} not written: {error}")
    return written
