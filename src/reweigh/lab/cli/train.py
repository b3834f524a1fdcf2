"""`reweigh train`: train a net, for one seed or several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from reweigh.lab.cli.options import (
    DEFAULT_LOSS,
    DEFAULTS,
    EPOCHS,
    Capture,
    Compile,
    Jobs,
    Json,
    Kernels,
    RunsRoot,
    with_fields,
)
from reweigh.lab.cli.runner import is_first_process, print_run, print_runs, run_one, run_several
from reweigh.lab.cli.terminal import print_stderr
from reweigh.lab.spec import Run, describe, own_names, read_seeds


@with_fields((*describe(), EPOCHS), defaults=DEFAULTS, loss=DEFAULT_LOSS)
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
    y_train. What you do not set is chosen for the data, and printed: net, loss, learning rate, length.

    The same command resumes an interrupted run and does not repeat a finished one.

    Examples: reweigh train --data photos/

    reweigh train --data digits --net mlp-128 --weighting "DM(lam=0.5, beta=8)" --noise symmetric --rate 0.4
    """
    from reweigh.lab.run import Speed

    speed = Speed(capture, kernels, compiled)
    if seeds is not None:
        if "seed" in fields:
            raise ValueError("give either --seed or --seeds")
        first = choose_run(fields)
        several = [replace(first, seed=seed) for seed in read_seeds(seeds)]
        for each in several:
            is_done(each, runs)  # raises if the data have changed: the mean would mix runs on different data
        print_runs(run_several(several, runs, jobs, speed), as_json)
        return
    if jobs > 1:
        raise ValueError(f"--jobs {jobs} needs several runs: give --seeds, or use reweigh resume --all")
    run = choose_run(fields)
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


def choose_run(fields: dict[str, Any]) -> Run:
    """Return the run with these fields, and print what was chosen for its data."""
    from reweigh.lab.run.defaults import choose

    if "data" not in fields:
        raise ValueError("give --data: the name of a data set (reweigh data list), a folder or a file")
    given = with_hashes(fields)
    try:
        choice = choose(given.pop("data"), given)
    except TypeError as error:  # on a command line a value of the wrong type is a wrong value
        raise ValueError(str(error)) from error
    if (described := choice.describe()) and is_first_process():
        print_stderr(described)
    return choice.run


def with_hashes(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the fields with the hashes of initial weights and own code, which a command line may run."""
    fields = dict(fields)
    if fields.get("init_file") and not fields.get("init_hash"):
        from reweigh.lab.record.files import sha256_of

        fields["init_hash"] = sha256_of(Path(fields["init_file"]))
    if any(own_names(str(fields.get(name) or "")) for name in ("net", "weighting", "loss", "method")):
        from reweigh.lab.own import code_hash, files_of, read_code

        fields = {"code_hash": code_hash(read_code(files_of(fields))), **fields, "own_code": True}
    return fields


def make_run(fields: dict[str, Any]) -> Run:
    """Return the run with these fields, and the hash of its initial weights."""
    try:
        return Run.from_mapping(with_hashes(fields))
    except TypeError as error:  # on a command line a value of the wrong type is a wrong value
        raise ValueError(str(error)) from error
