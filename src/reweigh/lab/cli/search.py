"""`reweigh search`: the best setting in a space, by the paper's protocol."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.lab.cli.failures import INTERRUPTED, STOPPED, EndedError
from reweigh.lab.cli.options import Json, RunsRoot, with_fields
from reweigh.lab.cli.progress import Tell, progress
from reweigh.lab.cli.stop import Stop
from reweigh.lab.cli.terminal import console, number, print_json, table
from reweigh.lab.spec import at_step, describe, parse

if TYPE_CHECKING:
    from rich.console import RenderableType

    from reweigh.lab.search import Outcome, Plan
    from reweigh.lab.search.study import Slot


class On(str, Enum):
    """What the workers are."""

    processes = "processes"
    ray = "ray"


# --workers are those of the search here; how many processes decode images is left at its default
@with_fields(
    [field for field in describe() if field.name != "workers"],
    defaults={"validation": "0.2, or none beside --trusted"},
    taught="one of --weighting, --loss, --method, or the space",
)
def search(
    fields: dict[str, Any],
    space: Annotated[
        str | None,
        typer.Option(help="What to choose, as in 'DM(lam=0..2, beta=0.5..24, taper=1e-7..1:log), lr=0.01..0.3:log'."),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="How many to try (40); a space of lists is tried whole.")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Workers on this machine; 0 only waits for others.")] = 1,
    trusted: Annotated[
        str | None,
        typer.Option(help="Judge by this set: a table, or 'test' for the test part; else by a part held out."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=0, help="Final runs on all training data, one for each seed.")] = 3,
    search_seed: Annotated[int, typer.Option(min=0, help="Seed of the choices.")] = 0,
    prune: Annotated[bool, typer.Option("--prune/--no-prune", help="Stop trials that are below the median.")] = True,
    storage: Annotated[
        str | None,
        typer.Option(envvar="REWEIGH_STORAGE", help="Database URL, if not an SQLite file beside the runs."),
    ] = None,
    study: Annotated[str | None, typer.Option(help="Name of the study, if not made from what is asked for.")] = None,
    join: Annotated[
        bool, typer.Option("--join", help="Help with a study that is there: --study and --storage.")
    ] = False,
    on: Annotated[On, typer.Option(help="Workers as processes here, or on a Ray cluster.")] = On.processes,
    print_slurm: Annotated[bool, typer.Option("--print-slurm", help="Print a SLURM array script and end.")] = False,
    runs: RunsRoot = Path("runs"),
    as_json: Json = False,
) -> None:
    """Search for the best weighting, learning rate or any other field of a run.

    A fifth of the training part is held out with clean labels (--validation-labels noisy: as they are), a trial is a
    run on the rest, and the best setting is trained on all training data over several seeds. A range is searched by
    TPE; lists in braces are a grid. Every trial is an ordinary run, so nothing is computed twice, and the same command
    goes on with a search that was cut short, or joins it from another machine.

    Example: reweigh search --data digits --net mlp-128 --noise symmetric --rate 0.4 --space "DM(lam=0..2,
    beta=0.5..24)" --trials 20 --workers 2
    """
    from reweigh.lab.search import plan_search
    from reweigh.lab.search.slurm import options, slurm_script

    where = {field.name: fields.pop(field.name) for field in describe() if not field.hashed and field.name in fields}
    asked: dict[str, Any]
    if join:
        plan, study = _joined(space, fields, storage, study)
    else:
        if space is None:
            raise ValueError("give a --space, or --join a study that is there")
        first = int(fields.get("seed", 0))
        over = tuple(range(first, first + seeds))
        asked = {**fields, **where}
        plan = plan_search(asked, space, trials=trials, trusted=trusted, seed=search_seed, prune=prune, seeds=over)
    if print_slurm:
        asked = {"join": True}
        if not join:
            asked = {**fields, "space": space, "trials": trials, "trusted": trusted, "seeds": seeds}
            asked |= {"search_seed": search_seed, **({} if prune else {"prune": False})}
        command = ["reweigh", "search", *options({**asked, **where, "study": study, "runs": runs})]
        print(slurm_script(command, max(1, workers), storage), end="")
        return
    outcome = _carry_out(plan, runs, storage, study, workers, on, where)
    written = runs / outcome.name / "search.html"
    _write_page(outcome, written)
    if as_json:
        print_json(outcome.to_mapping() | {"page": str(written)})
    else:
        report(outcome)
        print(f"\n{written}")


def _joined(space: str | None, fields: dict[str, Any], storage: str | None, study: str | None) -> tuple[Plan, str]:
    from reweigh.lab.search.storage import open_storage
    from reweigh.lab.search.study import join_study

    if space is not None or fields:
        raise ValueError(f"a study that is joined knows what to do; leave out {next(iter([*fields, 'space']))}")
    if storage is None or study is None:
        raise ValueError("--join needs --storage and --study")
    return join_study(open_storage(storage), study)[1], study


def _carry_out(
    plan: Plan, runs: Path, storage: str | None, study: str | None, workers: int, on: On, where: dict[str, Any]
) -> Outcome:
    from reweigh.lab.search import search as carry_out
    from reweigh.lab.search.search import SearchStopped
    from reweigh.lab.search.storage import silence_optuna

    silence_optuna()
    with Stop() as stop, progress("trials") as tell:
        try:
            return carry_out(
                plan,
                runs,
                storage=storage,
                name=study,
                workers=workers,
                on=on.value,
                where=where,
                watch=_teller(tell),
                should_stop=stop,
            )
        except SearchStopped as error:
            raise EndedError(STOPPED if stop.signal == signal.SIGTERM else INTERRUPTED, str(error)) from error


def _teller(tell: Tell) -> Any:
    """Tells of every change; looks come more often than changes."""
    last: list[object] = [None]

    def watch(stage: str, found: Sequence[Slot]) -> None:
        done = sum(slot.is_finished for slot in found)
        if last[0] != (stage, done):
            last[0] = stage, done
            scores = [
                slot.trial.value for slot in found if slot.trial is not None and slot.trial.state.name == "COMPLETE"
            ]
            best = max((score for score in scores if score is not None), default=None)
            tell(done, len(found), line="final runs" if stage == "final" else f"trials, best {number(best)}")

    return watch


def report(outcome: Outcome) -> None:
    """The table of trials, best first; the chosen setting; its accuracy over seeds."""
    console().print(trials_table(outcome))
    print(f"\nvalidation set: {outcome.plan.judged}")
    best = outcome.best
    if best is None:
        return
    setting = ", ".join(f"{name} {value}" for name, value in outcome.setting(best).items())
    print(f"best: trial {best.slot}: {setting}: validation accuracy {number(best.score)}")
    seeds = ", ".join(str(final.seed) for final in outcome.finals)
    if outcome.accuracy is not None:
        mean, deviation = outcome.accuracy
        spread = "" if deviation is None else f" +- {number(deviation)}"
        print(f"on all training data: {outcome.holdout} accuracy {number(mean)}{spread} (final, seeds {seeds})")
    elif outcome.finals:
        print(f"on all training data: trained with seeds {seeds}; the data have no test part to judge them by")
    if outcome.missing_seeds:
        print(f"on all training data: the runs of seeds {', '.join(map(str, outcome.missing_seeds))} have been removed")


def trials_table(outcome: Outcome) -> RenderableType:
    """One line per trial, the best first."""
    rows = [(trial, outcome.choices(trial)) for trial in outcome.trials]
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    rows.sort(key=lambda pair: (pair[0].state != "done", -(pair[0].score or 0)))
    cells = [
        (trial.slot, trial.state, *(row.get(name) for name in names), trial.score, trial.step, trial.error or "")
        for trial, row in rows
    ]
    return table(("trial", "state", *names, "validation", "step", ""), cells, left=2)


def _write_page(outcome: Outcome, path: Path) -> None:
    from reweigh.lab.figures.curves import curve_of
    from reweigh.lab.figures.svg import svg
    from reweigh.lab.objectives.weightings import weighting_from
    from reweigh.lab.record.files import replace_file
    from reweigh.lab.search.page import page

    best = outcome.best
    setting = {} if best is None else {**outcome.plan.fields, **outcome.setting(best)}
    density = None
    if setting.get("weighting") is not None:
        expression = at_step(parse(setting["weighting"]), 0, outcome.plan.iterations)
        density = svg([curve_of(weighting_from(expression), str(setting["weighting"]))])
    content = page(outcome, density).encode()
    replace_file(path, lambda file: file.write(content))
