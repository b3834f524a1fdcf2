"""Worker processes on this machine, supervised until the study is finished."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import IO, Any

import optuna

from reweigh.errors import DataError
from reweigh.lab.search.plan import Plan
from reweigh.lab.search.study import Keeper, Slot
from reweigh.lab.search.worker import Site

POLL = 0.5  # seconds
BAD_DATA = 3  # exit status of a worker that cannot read the data, as of the command line


class WorkersError(OSError):
    """All workers have failed; the message holds the last error."""


def workers_failed(last: str, bad_data: bool) -> DataError | WorkersError:
    """Return the error to raise when all workers have failed; `last` is the message of one."""
    message = f"all workers failed before the search was finished: {last}"
    return DataError(message) if bad_data else WorkersError(message)


def run_workers(
    study: optuna.Study,
    plan: Plan,
    site: Site,
    count: int,
    watch: Callable[[list[Slot]], None],
    should_stop: Callable[[], bool],
) -> None:
    """Keep `count` worker processes running until all slots are finished or `should_stop` returns True.

    A killed worker is replaced; one that fails with an error is not, and if all have, DataError or WorkersError is
    raised with the last message. Workers are assigned to the GPUs in turn; on a CPU they divide the cores as threads.
    """
    keeper = Keeper(plan, site.grace)
    keeper.tend(study)
    with tempfile.TemporaryFile("w+") as output:
        processes = [_start(study.study_name, site, i, count, output) for i in range(count)]
        try:
            while not should_stop():
                now = keeper.tend(study)
                watch(now)
                if all(slot.is_finished for slot in now):
                    break
                for i, process in enumerate(processes):
                    if process.poll() is not None and process.returncode < 0:
                        _end(process)
                        processes[i] = _start(study.study_name, site, i, count, output)
                if processes and all(process.poll() is not None for process in processes):
                    if all(slot.is_finished for slot in keeper.tend(study)):
                        break
                    output.seek(0)
                    last = (output.read().strip().splitlines() or ["no output"])[-1]
                    raise workers_failed(last, any(process.returncode == BAD_DATA for process in processes))
                time.sleep(POLL)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.terminate()
            for process in processes:
                _end(process)


def _start(study: str, site: Site, i: int, count: int, output: IO[str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "reweigh.lab.search.serve"],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        text=True,
    )
    assert process.stdin is not None
    where = device_for(i, site.where)
    threads = None if str(where.get("device", "")).startswith("cuda") else max(1, (os.cpu_count() or 1) // count)
    job = {"study": study, "site": replace(site, where=where).to_mapping(), "threads": threads}
    # a pipe, as the database URL may hold a password; it stays open for as long as this process lives
    process.stdin.write(json.dumps(job) + "\n")
    process.stdin.flush()
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def device_for(i: int, where: Mapping[str, Any]) -> dict[str, Any]:
    """Return `where` for worker number `i`, with the GPUs assigned in turn if the device is \"auto\"."""
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if where.get("device", "auto") == "auto" and gpus:
        return {**where, "device": f"cuda:{i % gpus}"}
    return dict(where)
