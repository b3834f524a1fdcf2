"""`reweigh train`: train a net, for one seed or several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from reweigh.lab.cli.options import Capture, Compile, Jobs, Json, Kernels, RunsRoot, with_fields
from reweigh.lab.cli.runner import print_run, print_runs, run_one, run_several
from reweigh.lab.cli.terminal import print_stderr
from reweigh.lab.spec import Run, describe, read_seeds


@with_fields(describe())
def train(
    fields: dict[str, Any],
    runs: RunsRoot = Path("runs"),
    seeds: Annotated[
        str | None, typer.Option(metavar="0,1,2|0-4", help="Train one run per seed, instead of --seed.")
    ] = None,
    jobs: Jobs = 1,
    capture: Capture = True,
    kernels: Kernels = True,
    compiled: Compile = None,
    as_json: Json = False,
) -> None:
    """Train a net, and record the run in a directory of its own.

    --data is the name of a data set (see reweigh data list) or the path of your own: a folder of images with one
    subfolder per class, a .csv or .parquet table with a column named label, or an .npz with arrays such as x_train and
    y_train.

    The same command resumes an interrupted run and does not repeat a finished one.

    Example: reweigh train --data digits --net mlp-128 --weighting "DM(lam=0.5, beta=8)" --noise symmetric --rate 0.4
    """
    from reweigh.lab.run import Speed

    speed = Speed(capture, kernels, compiled)
    if seeds is not None:
        if "seed" in fields:
            raise ValueError("give either --seed or --seeds")
        several = [make_run(fields | {"seed": seed}) for seed in read_seeds(seeds)]
        for each in several:
            is_done(each, runs)  # raises if the data have changed: the mean would mix runs on different data
        print_runs(run_several(several, runs, jobs, speed), as_json)
        return
    if jobs > 1:
        raise ValueError(f"--jobs {jobs} needs several runs: give --seeds, or use reweigh resume --all")
    run = make_run(fields)
    if is_done(run, runs):
        print_stderr("this run is already done")
    print_run(run_one(run, runs, speed), as_json)


def is_done(run: Run, root: Path) -> bool:
    """Return whether a run is finished; raise `DataError` if its data or labels have changed since."""
    folder = root / run.folder_name()
    if not (folder / "result.json").exists():
        return False
    from reweigh.lab.run.material import check_same_data, gather

    check_same_data(folder, gather(run))
    return True


def make_run(fields: dict[str, Any]) -> Run:
    """Return the run with these fields, and the hash of its initial weights."""
    if fields.get("init_file") and not fields.get("init_hash"):
        from reweigh.lab.record.files import sha256_of

        fields = fields | {"init_hash": sha256_of(Path(fields["init_file"]))}
    try:
        return Run.from_mapping(fields)
    except TypeError as error:  # on a command line a value of the wrong type is a wrong value
        raise ValueError(str(error)) from error
