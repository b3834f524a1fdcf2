"""`reweigh train`: one run, from its fields to a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from reweigh.lab.cli.engine import carry_out_alone, report
from reweigh.lab.cli.options import Capture, Compile, Jobs, Json, Kernels, RunsRoot, with_fields
from reweigh.lab.cli.several import carry_out_together, report_together
from reweigh.lab.cli.terminal import say
from reweigh.lab.spec import Run, describe, read_seeds


@with_fields(describe())
def train(
    fields: dict[str, Any],
    runs: RunsRoot = Path("runs"),
    seeds: Annotated[
        str | None, typer.Option(metavar="0,1,2|0-4", help="One run for each of these seeds instead of --seed.")
    ] = None,
    jobs: Jobs = 1,
    capture: Capture = True,
    kernels: Kernels = True,
    compiled: Compile = None,
    as_json: Json = False,
) -> None:
    """Train a net and keep a record that can be trusted.

    The data set is a name (reweigh data list) or a path to your own: a folder of images with one subfolder per class,
    a .csv or .parquet table with a column called label, or an .npz with arrays such as x_train and y_train.

    The same command resumes an interrupted run and never repeats a finished one.

    Example: reweigh train --data digits --net mlp-128 --weighting "DM(lam=0.5, beta=8)" --noise symmetric --rate 0.4
    """
    from reweigh.lab.run import Speed

    speed = Speed(capture, kernels, compiled)
    if seeds is not None:
        if "seed" in fields:
            raise ValueError("give either --seed or --seeds")
        several = [make_run(fields | {"seed": seed}) for seed in read_seeds(seeds)]
        for each in several:
            is_done(each, runs)  # or a mean would be of runs on different data
        report_together(carry_out_together(several, runs, jobs, speed), as_json)
        return
    if jobs > 1:
        raise ValueError(f"--jobs {jobs} is for several runs: give --seeds, or reweigh resume --all")
    run = make_run(fields)
    if is_done(run, runs):
        say("this run is done already")
    report(carry_out_alone(run, runs, speed), as_json)


def is_done(run: Run, root: Path) -> bool:
    """Whether there is nothing left to do for a run; one that was done on other data or labels is refused."""
    folder = root / run.folder_name()
    if not (folder / "result.json").exists():
        return False
    from reweigh.lab.run.material import check_same_data, gather

    check_same_data(folder, gather(run))
    return True


def make_run(fields: dict[str, Any]) -> Run:
    """Return the run with these fields."""
    if fields.get("init_file") and not fields.get("init_hash"):
        from reweigh.lab.record.files import sha256_of

        fields = fields | {"init_hash": sha256_of(Path(fields["init_file"]))}
    try:
        return Run.from_mapping(fields)
    except TypeError as error:  # a value of the wrong type is a wrong value, on a command line
        raise ValueError(str(error)) from error
