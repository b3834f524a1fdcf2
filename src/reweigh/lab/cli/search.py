"""`reweigh search`: tune hyperparameters, by the paper's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.lab.cli.exits import ExitError, Stop
from reweigh.lab.cli.options import Json, RunsRoot, with_fields
from reweigh.lab.cli.terminal import ShowProgress, console, echo, format_value, print_json, progress, table
from reweigh.lab.spec import at_step, describe, parse

if TYPE_CHECKING:
    from rich.console import RenderableType

    from reweigh.lab.search import Outcome, Plan
    from reweigh.lab.search.study import Slot


class On(str, Enum):
    """Where trials run."""

    processes = "processes"
    ray = "ray"


# here --workers are those of the search, not the processes that decode images
@with_fields(
    [field for field in describe() if field.name != "workers"],
    defaults={"validation": "0.2, or none with --trusted"},
    loss="one of --weighting, --loss, --method, or the space",
)
def search(
    fields: dict[str, Any],
    space: Annotated[
        str | None,
        typer.Option(help="Search space, such as 'DM(lam=0..2, beta=0.5..24, taper=1e-7..1:log), lr=0.01..0.3:log'."),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Number of trials (40); a grid is searched completely.")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Workers on this machine; 0: only wait for others.")] = 1,
    trusted: Annotated[
        str | None,
        typer.Option(help="Validation set: a table, or 'test' for the test set; default: a hold-out."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=0, help="Number of final runs on all training data, one per seed.")] = 3,
    search_seed: Annotated[int, typer.Option(min=0, help="Seed of the sampler.")] = 0,
    prune: Annotated[bool, typer.Option("--prune/--no-prune", help="Stop trials that fall below the median.")] = True,
    storage: Annotated[
        str | None,
        typer.Option(envvar="REWEIGH_STORAGE", help="Database URL; default: an SQLite file in the directory of runs."),
    ] = None,
    study: Annotated[str | None, typer.Option(help="Name of the study; default: derived from the settings.")] = None,
    join: Annotated[
        bool, typer.Option("--join", help="Join an existing study, given by --study and --storage.")
    ] = False,
    on: Annotated[
        On, typer.Option(help="Run trials in processes on this machine, or on a Ray cluster.")
    ] = On.processes,
    print_slurm: Annotated[bool, typer.Option("--print-slurm", help="Print a SLURM array script and exit.")] = False,
    runs: RunsRoot = Path("runs"),
    as_json: Json = False,
) -> None:
    """Search for the best weighting, learning rate or any other field of a run.

    A fifth of the training set is held out with clean labels (--validation-labels noisy: with its given labels); each
    trial trains on the rest. The best setting is then trained on all training data over several seeds. Ranges are
    searched by TPE; lists in braces form a grid. Every trial is an ordinary run, so none is repeated: the same command
    resumes an interrupted search, or joins it from another machine.

    Example: reweigh search --data digits --net mlp-128 --noise symmetric --rate 0.4 --space "DM(lam=0..2,
    beta=0.5..24)" --trials 20 --workers 2
    """
    from reweigh.lab.search import plan_search
    from reweigh.lab.search.slurm import options, slurm_script

    where = {field.name: fields.pop(field.name) for field in describe() if not field.hashed and field.name in fields}
    settings: dict[str, Any]
    if join:
        plan, study = _joined(space, fields, storage, study)
    else:
        if space is None:
            raise ValueError("give a --space, or --join an existing study")
        first = int(fields.get("seed", 0))
        over = tuple(range(first, first + seeds))
        settings = {**fields, **where}
        plan = plan_search(settings, space, trials=trials, trusted=trusted, seed=search_seed, prune=prune, seeds=over)
    if print_slurm:
        settings = {"join": True}
        if not join:
            settings = {**fields, "space": space, "trials": trials, "trusted": trusted, "seeds": seeds}
            settings |= {"search_seed": search_seed, **({} if prune else {"prune": False})}
        command = ["reweigh", "search", *options({**settings, **where, "study": study, "runs": runs})]
        echo(slurm_script(command, max(1, workers), storage).removesuffix("\n"))
        return
    outcome = _execute(plan, runs, storage, study, workers, on, where)
    written = runs / outcome.name / "search.html"
    _write_page(outcome, written)
    if as_json:
        print_json(outcome.to_mapping() | {"page": str(written)})
    else:
        print_outcome(outcome)
        echo(f"\n{written}")


def _joined(space: str | None, fields: dict[str, Any], storage: str | None, study: str | None) -> tuple[Plan, str]:
    from reweigh.lab.search.storage import use_database
    from reweigh.lab.search.study import join_study
    from reweigh.lab.search.worker import GRACE

    if space is not None or fields:
        raise ValueError(
            f"--join takes all settings from the study; remove --{next(iter([*fields, 'space'])).replace('_', '-')}"
        )
    if storage is None or study is None:
        raise ValueError("--join needs --storage and --study")
    with use_database(storage, GRACE) as opened:
        return join_study(opened, study)[1], study


def _execute(
    plan: Plan, runs: Path, storage: str | None, study: str | None, workers: int, on: On, where: dict[str, Any]
) -> Outcome:
    from reweigh.lab.search import search as execute_search
    from reweigh.lab.search.search import SearchStopped
    from reweigh.lab.search.storage import silence_optuna

    silence_optuna()
    with Stop() as stop, progress("trials") as show:
        try:
            return execute_search(
                plan,
                runs,
                storage=storage,
                name=study,
                workers=workers,
                on=on.value,
                where=where,
                watch=_watcher(show),
                should_stop=stop,
            )
        except SearchStopped as error:
            raise ExitError(stop.code, str(error)) from error


def _watcher(show: ShowProgress) -> Any:
    """Return a watcher that shows progress when it has changed, not at every poll."""
    last: list[object] = [None]

    def watch(stage: str, found: Sequence[Slot]) -> None:
        done = sum(slot.is_finished for slot in found)
        if last[0] != (stage, done):
            last[0] = stage, done
            scores = [
                slot.trial.value for slot in found if slot.trial is not None and slot.trial.state.name == "COMPLETE"
            ]
            best = max((score for score in scores if score is not None), default=None)
            show(done, len(found), line="final runs" if stage == "final" else f"trials, best {format_value(best)}")

    return watch


def print_outcome(outcome: Outcome) -> None:
    """Print the table of trials, the best setting, and its accuracy over seeds."""
    console().print(trials_table(outcome))
    echo(f"\nvalidation set: {outcome.plan.judged}")
    best = outcome.best
    if best is None:
        return
    setting = ", ".join(f"{name} {value}" for name, value in outcome.setting(best).items())
    echo(f"best: trial {best.slot}: {setting}: validation accuracy {format_value(best.score)}")
    seeds = ", ".join(str(final.seed) for final in outcome.finals)
    if outcome.accuracy is not None:
        mean, deviation = outcome.accuracy
        spread = "" if deviation is None else f" +- {format_value(deviation)}"
        echo(f"on all training data: {outcome.holdout} accuracy {format_value(mean)}{spread} (final, seeds {seeds})")
    elif outcome.finals:
        echo(f"on all training data: trained with seeds {seeds}; not evaluated, because there is no test set")
    if outcome.missing_seeds:
        echo(f"on all training data: the runs of seeds {', '.join(map(str, outcome.missing_seeds))} have been removed")


def trials_table(outcome: Outcome) -> RenderableType:
    """Return the table of trials, the best first."""
    rows = [(tried, outcome.choices(tried)) for tried in outcome.trials]
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    rows.sort(key=lambda pair: (pair[0].state != "done", -(pair[0].score or 0)))
    cells = [
        (trial.slot, trial.state, *(row.get(name) for name in names), trial.score, trial.step, trial.error or "")
        for trial, row in rows
    ]
    return table(("trial", "state", *names, "validation", "step", ""), cells, left=2)


def _write_page(outcome: Outcome, path: Path) -> None:
    from reweigh.lab.record.files import replace_file
    from reweigh.lab.report.figures import density_of_setting
    from reweigh.lab.search.page import page

    best = outcome.best
    setting = {} if best is None else {**outcome.plan.fields, **outcome.setting(best)}
    density = None
    if setting.get("weighting") is not None:
        expression = at_step(parse(setting["weighting"]), 0, outcome.plan.iterations)
        density = density_of_setting(expression)
    content = page(outcome, density).encode()
    replace_file(path, lambda file: file.write(content))
