"""`reweigh train`: one run, from its fields to a folder."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from reweigh.cli.engine import carry_out_alone, report
from reweigh.cli.options import Capture, Compile, Jobs, Json, Kernels, RunsRoot, with_fields
from reweigh.cli.several import carry_out_together, report_together
from reweigh.cli.terminal import say
from reweigh.spec import Run, authors, describe, parse, read_seeds, text


class Preset(str, Enum):
    """The paper's protocols."""

    text = "text"
    authors = "authors"


@with_fields(describe())
def train(
    fields: dict[str, Any],
    runs: RunsRoot = Path("runs"),
    preset: Annotated[
        Preset | None,
        typer.Option(help="Start from a protocol of the paper: as its text says, or as its authors ran."),
    ] = None,
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

    The same command goes on with a run that was cut short, and never repeats one that is done. Every switch has its
    opposite, such as --no-deterministic, for use with a preset.

    Example: reweigh train --data digits --net mlp-128 --weighting "DM(lam=0.5, beta=8)" --noise symmetric --rate 0.4
    """
    from reweigh.run import Speed

    speed = Speed(capture, kernels, compiled)
    if seeds is not None:
        if "seed" in fields:
            raise ValueError("give either --seed or --seeds")
        several = [make_run(fields | {"seed": seed}, preset) for seed in read_seeds(seeds)]
        for each in several:
            is_done(each, runs)  # or a mean would be of runs on different data
        report_together(carry_out_together(several, runs, jobs, speed), as_json)
        return
    if jobs > 1:
        raise ValueError(f"--jobs {jobs} is for several runs: give --seeds, or reweigh resume --all")
    run = make_run(fields, preset)
    if is_done(run, runs):
        say("this run is done already")
    report(carry_out_alone(run, runs, speed), as_json)


def is_done(run: Run, root: Path) -> bool:
    """Whether there is nothing left to do for a run; one that was done on other data or labels is refused."""
    folder = root / run.folder_name()
    if not (folder / "result.json").exists():
        return False
    from reweigh.run.material import check_same_data, gather

    check_same_data(folder, gather(run))
    return True


def make_run(fields: dict[str, Any], preset: Preset | None = None) -> Run:
    """The run of the given fields, on top of a preset where one is named."""
    if preset is not None:
        fields = _protocol(fields, preset).to_mapping() | fields
    if fields.get("init_file") and not fields.get("init_hash"):
        from reweigh.record.files import sha256_of

        fields = fields | {"init_hash": sha256_of(Path(fields["init_file"]))}
    try:
        return Run.from_mapping(fields)
    except TypeError as error:  # a value of the wrong type is a wrong value, on a command line
        raise ValueError(str(error)) from error


def _protocol(fields: dict[str, Any], preset: Preset) -> Run:
    taught = {name: fields[name] for name in ("weighting", "loss", "method") if name in fields}
    noise = fields.get("noise")
    if not taught and noise is not None and parse(noise).name != "symmetric":
        raise ValueError(f"the preset's own weighting is for symmetric noise, not {noise}; give a --weighting")
    start = {name: fields[name] for name in ("data", "rate", "seed") if name in fields}
    return (text if preset is Preset.text else authors)(**start, **taught)
