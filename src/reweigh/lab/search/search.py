"""Run a search: its trials, then the best setting on all training data over several seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import optuna

from reweigh.errors import DataError
from reweigh.lab.record import read_header
from reweigh.lab.record.files import make_folder, replace_file, write_json
from reweigh.lab.search.on_ray import run_on_ray
from reweigh.lab.search.outcome import Outcome, read_outcome
from reweigh.lab.search.plan import Plan
from reweigh.lab.search.storage import optuna_silenced, sqlite_url, use_database
from reweigh.lab.search.study import Keeper, Slot, open_study, reopen, slots
from reweigh.lab.search.worker import BEAT, GRACE, Call, Site, work
from reweigh.lab.search.workers import run_workers
from reweigh.lab.spec import Run, parse

On: TypeAlias = Literal["processes", "ray"]
Watch: TypeAlias = Callable[[str, Sequence[Slot]], None]


class SearchStopped(Exception):  # noqa: N818  (not an error)
    """A search was interrupted; the same call resumes it."""


@optuna_silenced()
def search(
    plan: Plan,
    root: Path,
    *,
    storage: str | None = None,
    name: str | None = None,
    workers: int = 1,
    on: On = "processes",
    where: Mapping[str, Any] | None = None,
    watch: Watch = lambda stage, found: None,
    should_stop: Callable[[], bool] = lambda: False,
    beat: float = BEAT,
    grace: float = GRACE,
) -> Outcome:
    """Run a search, or resume it; a finished one is only read, unless its data have changed.

    A failure of the data, the disk or the database ends the search with its error, and the next call repeats the trial.
    Running out of memory fails the trial only, and the next call repeats it; any other error of a trial is final.

    Args:
        plan: from `plan_search`.
        root: the directory of the run folders; the search's own folder is `root / name`.
        storage: a database URL; by default an SQLite file in the search's folder.
        name: the name of the study; by default one derived from the plan.
        workers: 1 works in this process, more are separate processes; 0 only waits for other workers.
        on: "processes" on this machine, or "ray" for a Ray cluster (extra `ray`).
        where: fields of `Run` that do not change its result (data_root, device, workers, init_file); override the
            plan's.
        watch: called with the stage ("trials" or "final") and the slots.
        should_stop: polled; if it returns True, all open trials are released and `SearchStopped` is raised.
        beat, grace: see `work`.

    Returns:
        the outcome, which is also written to trials.csv and search.json in the search's folder.
    """
    root, name = Path(root), name or plan.name
    folder = root / name
    make_folder(folder)
    site = Site(storage or sqlite_url(folder / "study.db"), root, {**plan.where, **(where or {})}, beat, grace)
    if plan.judged.startswith("trusted"):
        from reweigh.lab.search.checks import check_trusted

        corner = next(plan.space.corners())
        check_trusted(plan.run_of(corner, site.where), plan.judged)

    def finish_stage(stage: str, part: Plan, study_name: str) -> optuna.Study:
        study = open_study(part, opened, study_name)
        reopen(study, part)
        is_finished = all(slot.is_finished for slot in slots(study))
        if workers and (stage == "trials" or not is_finished):
            _check_data(read_outcome(open_study(plan, opened, name), plan, root), site)
        if workers and stage == "trials" and not is_finished:
            from reweigh.lab.search.checks import check_buildable

            check_buildable(plan, site.where)
        _finish(study, part, site, workers, on, lambda now: watch(stage, now), should_stop)
        return study

    with use_database(site.storage, grace) as opened:
        study = finish_stage("trials", plan, name)
        outcome = read_outcome(study, plan, root)
        if outcome.best is None or outcome.best.point is None:
            reasons = sorted({trial.error for trial in outcome.trials if trial.error})
            raise ValueError(f"none of the {len(outcome.trials)} trials finished: {'; '.join(reasons)}")
        if plan.seeds:
            final = plan.final(outcome.best.point)
            final_name = f"{name}-{final.name}"
            # written now, in case a final run fails
            _write(folder, read_outcome(study, plan, root, open_study(final, opened, final_name)))
            trained = finish_stage("final", final, final_name)
            if reasons := sorted({slot.error for slot in slots(trained) if slot.error}):
                raise ValueError(f"the best setting failed on all training data: {'; '.join(reasons)}")
            outcome = read_outcome(study, plan, root, trained)
    _write(folder, outcome)
    return outcome


def _check_data(outcome: Outcome, site: Site) -> None:
    """Raise DataError if the data, or labels read from a file, have changed since the earlier trials."""
    from reweigh.lab.run.material import (  # imports torch, which reading a finished search does not need
        check_same_data,
        gather,
        load,
    )

    known = [site.runs / trial.run for trial in outcome.trials if trial.run and trial.state in ("done", "pruned")]
    if known := [folder for folder in known if (folder / "run.json").exists()]:
        corner = outcome.plan.run_of(next(outcome.plan.space.corners()), site.where)
        now = load(corner).hash
        given = {}
        for folder in known:
            header = read_header(folder)
            if header.data_hash != now:
                raise DataError(
                    f"{corner.data} has changed since the search {outcome.name} began: {folder} has data with the "
                    f"hash {header.data_hash[:12]}..., not {now[:12]}...; search again in another folder of runs"
                )
            if header.run.noise is not None and parse(header.run.noise).name == "given":
                given[header.label_hash] = folder, header.run
        for folder, run in given.values():
            check_same_data(folder, gather(Run.from_mapping({**run.to_mapping(), **site.where})))


def _write(folder: Path, outcome: Outcome) -> None:
    write_json(folder / "search.json", outcome.to_mapping())
    table = outcome.to_csv().encode()
    replace_file(folder / "trials.csv", lambda file: file.write(table))


def _finish(
    study: optuna.Study,
    plan: Plan,
    site: Site,
    workers: int,
    on: On,
    watch: Callable[[list[Slot]], None],
    should_stop: Callable[[], bool],
) -> None:
    """Work until all slots are finished; raise SearchStopped if interrupted before."""
    now = Keeper(plan, site.grace).tend(study)
    if not all(slot.is_finished for slot in now):
        if on == "ray":
            run_on_ray(study, plan, site, workers)
        elif workers == 1:
            _work_here(study, plan, site, watch, should_stop)
        else:
            run_workers(study, plan, site, workers, watch, should_stop)
        now = slots(study)
    watch(now)
    if not all(slot.is_finished for slot in now):
        raise SearchStopped(f"the search {study.study_name} is not finished; the same command resumes it")


def _work_here(
    study: optuna.Study,
    plan: Plan,
    site: Site,
    watch: Callable[[list[Slot]], None],
    should_stop: Callable[[], bool],
) -> None:
    from reweigh.lab.search.objective import run_objective  # imports torch, which reading does not need

    execute = run_objective(site.runs, plan.score)

    def objective(run: Run, call: Call) -> float:
        watch(slots(study))
        return execute(run, call)

    work(study, plan, objective, where=site.where, should_leave=should_stop, beat=site.beat, grace=site.grace)
