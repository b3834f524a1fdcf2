"""The same study on a Ray cluster, through Ray Tune (extra `ray`): Tune says where and when, the study says what.

Every trial of Tune takes one slot from the study's database, so seeds, pruning, retries and run folders are those of
any other worker, and other workers may help. All nodes must reach the database and the folder of runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import optuna

from reweigh.errors import DataError, require
from reweigh.lab.search.plan import Plan
from reweigh.lab.search.storage import open_storage, quiet, spoken
from reweigh.lab.search.study import join_study, slots
from reweigh.lab.search.worker import CIRCUMSTANCES, Site, work
from reweigh.lab.search.workers import ended_early

RETRIES = 10  # of a trial of Tune whose node is lost


def run_on_ray(study: optuna.Study, plan: Plan, site: Site, workers: int) -> None:
    """Finish the open slots as trials of Ray Tune, `workers` at a time.

    Connects to the cluster that RAY_ADDRESS or an earlier `ray.init` names, else starts one on this machine. On nodes
    with GPUs every trial gets a share of one, so that `workers` of them use all there are.
    """
    if workers < 1:
        raise ValueError(f"workers is {workers}; on Ray at least 1 is needed")
    ray, tune = require("ray", extra="ray"), require("ray.tune", extra="ray")
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level="warning")
    opened = sum(not slot.is_finished for slot in slots(study))
    gpus = float(ray.cluster_resources().get("GPU", 0))
    share = {"gpu": min(1.0, gpus / workers)} if gpus else {}
    trainable = tune.with_resources(_one_slot, {"cpu": 1, **share})
    tuner = tune.Tuner(
        trainable,
        param_space={"number": tune.grid_search(list(range(opened))), "study": study.study_name, **_words(site)},
        tune_config=tune.TuneConfig(max_concurrent_trials=workers, metric="finished", mode="max"),
        run_config=tune.RunConfig(
            name=study.study_name,
            storage_path=str((site.runs / ".ray").resolve()),
            failure_config=tune.FailureConfig(max_failures=RETRIES),
            verbose=0,
        ),
    )
    told = [result.metrics or {} for result in tuner.fit()]
    troubles = [metrics for metrics in told if metrics.get("trouble")]
    if troubles and not all(slot.is_finished for slot in slots(study)):
        raise ended_early(troubles[-1]["trouble"], bad_data=troubles[-1]["bad_data"])


def _words(site: Site) -> dict[str, Any]:
    return {"site": {**site.to_mapping(), "runs": str(Path(site.runs).resolve())}}


def _one_slot(config: dict[str, Any]) -> None:
    """What Tune runs: one slot, or none where others have finished them all.

    What is in a worker's way is reported, not raised: Tune would try it again ten times.
    """
    import torch

    from reweigh.lab.search.objective import by_execution

    quiet()
    torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
    site = Site.from_mapping(config["site"])
    told: dict[str, Any] = {"finished": 0, "trouble": "", "bad_data": False}
    try:
        with spoken(site.storage):
            study, plan = join_study(open_storage(site.storage), config["study"])
            objective = by_execution(site.runs, plan.score)
            told["finished"] = work(study, plan, objective, where=site.where, beat=site.beat, grace=site.grace, most=1)
    except CIRCUMSTANCES as error:
        told |= {"trouble": str(error), "bad_data": isinstance(error, DataError)}
    require("ray.tune", extra="ray").report(told)
