"""A search from beginning to end: trials, the best of them, and that setting on all training data over seeds."""

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
from reweigh.lab.search.storage import open_storage, quietly, spoken, sqlite_url
from reweigh.lab.search.study import Keeper, Slot, open_study, reopen, slots
from reweigh.lab.search.worker import BEAT, GRACE, Call, Site, work
from reweigh.lab.search.workers import run_workers
from reweigh.lab.spec import Run, parse

On: TypeAlias = Literal["processes", "ray"]
Watch: TypeAlias = Callable[[str, Sequence[Slot]], None]


class SearchStopped(Exception):  # noqa: N818  (it is no error)
    """A search was asked to stop; the same call goes on with it."""


@quietly()
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
    """Carry a search out, or on from where it stands; a finished one is only read, unless its data have changed.

    Data, a disk or a database that fail a trial end the search with their error, and the trial is tried again by the
    next call. Want of memory fails only the trial, and the next call tries it again, too; other errors are final.

    Args:
        plan: from `plan_search`.
        root: where run folders lie; the search's own folder is `root / name`.
        storage: a database URL; by default an SQLite file in that folder.
        name: of the study, by default one that the plan decides.
        workers: 1 works in this process, more are processes of their own; 0 only waits for others.
        on: "processes" on this machine, or "ray" for a Ray cluster (extra `ray`).
        where: fields of `Run` that say where or how fast (data_root, device, workers, init_file), before the plan's.
        watch: told the stage ("trials" or "final") and how the slots stand.
        should_stop: asked often; True hands all trials back and raises `SearchStopped`.
        beat, grace: see `work`.

    Returns:
        the outcome, which is also written to trials.csv and search.json in the search's folder.
    """
    root, name = Path(root), name or plan.name
    folder = root / name
    make_folder(folder)
    site = Site(storage or sqlite_url(folder / "study.db"), root, {**plan.where, **(where or {})}, beat, grace)
    if plan.judged.startswith("trusted"):
        from reweigh.lab.search.checks import check_apart

        corner = next(plan.space.corners())
        check_apart(plan.run_of(corner, site.where), plan.judged)
    opened = open_storage(site.storage)

    def carry_out(stage: str, part: Plan, called: str) -> optuna.Study:
        study = open_study(part, opened, called)
        reopen(study, part)
        is_finished = all(slot.is_finished for slot in slots(study))
        if workers and (stage == "trials" or not is_finished):
            _check_data(read_outcome(open_study(plan, opened, name), plan, root), site)
        if workers and stage == "trials" and not is_finished:
            from reweigh.lab.search.checks import check_buildable

            check_buildable(plan, site.where)
        _finish(study, part, site, workers, on, lambda found: watch(stage, found), should_stop)
        return study

    with spoken(site.storage):
        study = carry_out("trials", plan, name)
        outcome = read_outcome(study, plan, root)
        if outcome.best is None or outcome.best.point is None:
            reasons = sorted({tried.error for tried in outcome.tried if tried.error})
            raise ValueError(f"none of the {len(outcome.tried)} trials was finished: {'; '.join(reasons)}")
        if plan.seeds:
            final = plan.final(outcome.best.point)
            called = f"{name}-{final.name}"
            # the table of trials, whatever becomes of the final runs
            _write(folder, read_outcome(study, plan, root, open_study(final, opened, called)))
            trained = carry_out("final", final, called)
            if reasons := sorted({slot.error for slot in slots(trained) if slot.error}):
                raise ValueError(f"the best setting cannot be trained on all data: {'; '.join(reasons)}")
            outcome = read_outcome(study, plan, root, trained)
    _write(folder, outcome)
    return outcome


def _check_data(outcome: Outcome, site: Site) -> None:
    """Refuse data, or labels from a file, that are no longer those which earlier trials were judged by."""
    from reweigh.lab.run.material import (  # torch, which those who only look on do not need
        check_same_data,
        gather,
        load,
    )

    known = [site.runs / tried.run for tried in outcome.tried if tried.run and tried.state in ("done", "pruned")]
    if known := [folder for folder in known if (folder / "run.json").exists()]:
        corner = outcome.plan.run_of(next(outcome.plan.space.corners()), site.where)
        now = load(corner).hash
        given = {}
        for folder in known:
            header = read_header(folder)
            if header.data_hash != now:
                raise DataError(
                    f"{corner.data} has changed since the search {outcome.name} began: {folder} is of data with the "
                    f"hash {header.data_hash[:12]}..., not {now[:12]}...; give another folder of runs, and search again"
                )
            if header.run.noise is not None and parse(header.run.noise).name == "given":
                given[header.label_hash] = folder, header.run
        for folder, run in given.values():  # most often one, for all trials
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
    """Have all slots finished."""
    found = Keeper(plan, site.grace).tend(study)
    if not all(slot.is_finished for slot in found):
        if on == "ray":
            run_on_ray(study, plan, site, workers)
        elif workers == 1:
            _work_here(study, plan, site, watch, should_stop)
        else:
            run_workers(study, plan, site, workers, watch, should_stop)
        found = slots(study)
    watch(found)
    if not all(slot.is_finished for slot in found):
        raise SearchStopped(f"the search {study.study_name} is not finished; the same command goes on with it")


def _work_here(
    study: optuna.Study,
    plan: Plan,
    site: Site,
    watch: Callable[[list[Slot]], None],
    should_stop: Callable[[], bool],
) -> None:
    from reweigh.lab.search.objective import by_execution  # imports torch, which those who only look on do not need

    execute = by_execution(site.runs, plan.score)

    def objective(run: Run, call: Call) -> float:
        watch(slots(study))
        return execute(run, call)

    work(study, plan, objective, where=site.where, should_leave=should_stop, beat=site.beat, grace=site.grace)
