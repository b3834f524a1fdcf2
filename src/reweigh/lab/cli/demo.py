"""`reweigh demo`: three ways to learn from labels of which 40 % are wrong."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reweigh.errors import MissingExtraError
from reweigh.lab.cli.engine import carry_out, summary
from reweigh.lab.cli.options import Json
from reweigh.lab.cli.progress import progress
from reweigh.lab.cli.stop import Stop
from reweigh.lab.cli.terminal import console, print_json, say, table
from reweigh.lab.spec import Run, parse

if TYPE_CHECKING:
    from reweigh.lab.figures.curves import Curve
    from reweigh.lab.run import Update

WEIGHTINGS = ("CCE", "GCE(0.7)", "DM(0.5, 8)")


def demo_run(weighting: str, seed: int) -> Run:
    """One run of the demo: all that differs is the weighting and the seed."""
    return Run(
        data="digits",
        noise="symmetric",
        rate=0.4,
        net="mlp-256",
        weighting=weighting,
        normalise="unit",  # one scale, so that one learning rate is fair to all; CCE stays cross entropy
        iterations=800,
        batch_size=128,
        lr=0.03,
        weight_decay=5e-4,
        evaluate_every=80,
        seed=seed,
        device="cpu",
    )


def demo(
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Runs of each method.")] = 3,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where everything goes.")] = Path(
        "demo"
    ),
    as_json: Json = False,
) -> None:
    """Train CCE, GCE and DM on digits with 40 % wrong labels, and compare them on clean test labels."""
    runs = [(weighting, demo_run(weighting, seed)) for weighting in WEIGHTINGS for seed in range(seeds)]
    first = runs[0][1]
    say(
        f"data: scikit-learn's 8 x 8 digits, 1,200 to train on with {first.rate:.0%} wrong labels ({first.noise}), "
        "597 with right labels to test on\n"
        f"every method alike: {first.net}, {first.iterations} iterations of {first.batch_size}, {first.optimiser} "
        f"{first.momentum}, lr {first.lr} ({first.schedule}), weight decay {first.weight_decay:g}, "
        f"w divided by its integral, {seeds} seeds"
    )
    folders: dict[str, list[Path]] = {weighting: [] for weighting in WEIGHTINGS}
    total = sum(run.iterations for _, run in runs)
    before = 0
    with _one_thread(), Stop() as stop, progress("it") as tell:

        def watch(update: Update) -> None:
            state = "" if update.row is None else summary(update.row)
            tell(before + update.step, total, line=update.note, state=state)

        for weighting, run in runs:
            folders[weighting].append(carry_out(run, output / "runs", stop, watch))
            before += run.iterations
            tell(before, total, line=f"{weighting}, seed {run.seed}: done")
    results = {weighting: _accuracies(found) for weighting, found in folders.items()}
    figures = _draw(output)
    if as_json:
        print_json({"runs": str(output / "runs"), "accuracy": results, "figures": list(map(str, figures))})
        return
    rows = [(weighting, *(spread(values) for values in found.values())) for weighting, found in results.items()]
    print("\ntest accuracy in per cent, mean ± standard deviation over seeds")
    console().print(table(("", "final", "best of the run"), rows))
    print("an illustration, not a comparison: the settings above were chosen by looking at such tables")
    print("\n" + "\n".join(map(str, (output / "runs", *figures))))


@contextmanager
def _one_thread() -> Iterator[None]:
    """A net this small gains nothing from two threads, and loses much where they wait for each other."""
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


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation of shares, in per cent.

    >>> spread([0.9, 0.92]), spread([0.9])
    ('91.0 ± 1.4', '90.0')
    """
    mean = 100 * statistics.fmean(values)
    return f"{mean:.1f} ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else f"{mean:.1f}"


def _draw(output: Path) -> list[Path]:
    """The emphasis densities, as PNG where matplotlib is there."""
    from reweigh.lab.figures.curves import curve_of
    from reweigh.lab.figures.save import save
    from reweigh.lab.objectives import weighting_from

    curves: list[Curve] = [curve_of(weighting_from(parse(text)), text) for text in WEIGHTINGS]
    written: list[Path] = []
    for name in ("emphasis.svg", "emphasis.png"):
        try:
            save(curves, output / name)
            written.append(output / name)
        except MissingExtraError as error:
            say(f"no {name}: {error}")
    return written
