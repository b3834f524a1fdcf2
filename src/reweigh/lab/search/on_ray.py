"""Workers on a Ray cluster, scheduled by Ray Tune (extra `ray`).

Every trial of Tune takes one slot from the study's database, so that seeds, pruning, retries and run folders are those
of any other worker, and other workers can join. All nodes must reach the database and the folder of runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import optuna

from reweigh.errors import DataError, require
from reweigh.lab.search.plan import Plan
from reweigh.lab.search.storage import silence_optuna, use_database
from reweigh.lab.search.study import join_study, slots
from reweigh.lab.search.worker import ENVIRONMENT_ERRORS, Site, work
from reweigh.lab.search.workers import workers_failed

MAX_FAILURES = 10  # of a trial of Tune whose node is lost


def run_on_ray(study: optuna.Study, plan: Plan, site: Site, workers: int) -> None:
    """Finish the open slots as trials of Ray Tune, `workers` at a time.

    Connects to the cluster of RAY_ADDRESS or of an earlier `ray.init`, else starts one on this machine. If there are
    GPUs, every trial gets a fraction of one, so that all are used.
    """
    if workers < 1:
        raise ValueError(f"workers is {workers}; expected at least 1 on Ray")
    ray, tune = require("ray", extra="ray"), require("ray.tune", extra="ray")
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level="warning")
    opened = sum(not slot.is_finished for slot in slots(study))
    gpus = float(ray.cluster_resources().get("GPU", 0))
    share = {"gpu": min(1.0, gpus / workers)} if gpus else {}
    trainable = tune.with_resources(_one_slot, {"cpu": 1, **share})
    tuner = tune.Tuner(
        trainable,
        param_space={"number": tune.grid_search(list(range(opened))), "study": study.study_name, **_config(site)},
        tune_config=tune.TuneConfig(max_concurrent_trials=workers, metric="finished", mode="max"),
        run_config=tune.RunConfig(
            name=study.study_name,
            storage_path=str((site.runs / ".ray").resolve()),
            failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
            verbose=0,
        ),
    )
    reports = [result.metrics or {} for result in tuner.fit()]
    failed = [metrics for metrics in reports if metrics.get("error")]
    if failed and not all(slot.is_finished for slot in slots(study)):
        raise workers_failed(failed[-1]["error"], bad_data=failed[-1]["bad_data"])


def _config(site: Site) -> dict[str, Any]:
    return {"site": {**site.to_mapping(), "runs": str(Path(site.runs).resolve())}}


def _one_slot(config: dict[str, Any]) -> None:
    """Work on one slot, or on none if all are finished.

    Errors of the environment are reported, not raised: Tune would retry ten times.
    """
    import torch

    from reweigh.lab.search.objective import run_objective

    silence_optuna()
    torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
    site = Site.from_mapping(config["site"])
    report: dict[str, Any] = {"finished": 0, "error": "", "bad_data": False}
    try:
        with use_database(site.storage, site.grace) as storage:
            study, plan = join_study(storage, config["study"])
            objective = run_objective(site.runs, plan.score)
            report["finished"] = work(
                study, plan, objective, where=site.where, beat=site.beat, grace=site.grace, most=1
            )
    except ENVIRONMENT_ERRORS as error:
        report |= {"error": str(error), "bad_data": isinstance(error, DataError)}
    require("ray.tune", extra="ray").report(report)
