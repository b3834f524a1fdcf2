"""Several workers on this machine, looked after until the study is finished."""

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

LOOK = 0.5  # seconds between two looks
BAD_DATA = 3  # exit status of a worker that cannot read the data, as of the command


class WorkersError(OSError):
    """All workers have ended with an error; the message holds what the last of them said."""


def ended_early(last: str, bad_data: bool) -> DataError | WorkersError:
    """What to raise when all workers have ended before the search: `last` is what one of them said."""
    sentence = f"all workers have ended before the search was finished: {last}"
    return DataError(sentence) if bad_data else WorkersError(sentence)


def run_workers(
    study: optuna.Study,
    plan: Plan,
    site: Site,
    count: int,
    watch: Callable[[list[Slot]], None],
    should_stop: Callable[[], bool],
) -> None:
    """Keep `count` worker processes at work until all slots are finished, or until asked to stop.

    One that is killed is replaced; one that ends with an error of its own is not. Where all have, DataError or
    WorkersError tells what the last of them said. Several share a GPU; where there are several GPUs, they are dealt
    out in turn. On a CPU the cores are shared out as threads.
    """
    keeper = Keeper(plan, site.grace)
    keeper.tend(study)
    with tempfile.TemporaryFile("w+") as said:
        processes = [_start(study.study_name, site, i, count, said) for i in range(count)]
        try:
            while not should_stop():
                found = keeper.tend(study)
                watch(found)
                if all(slot.is_finished for slot in found):
                    break
                for i, process in enumerate(processes):
                    if process.poll() is not None and process.returncode < 0:
                        _end(process)
                        processes[i] = _start(study.study_name, site, i, count, said)
                if processes and all(process.poll() is not None for process in processes):
                    if all(slot.is_finished for slot in keeper.tend(study)):
                        break
                    said.seek(0)
                    last = (said.read().strip().splitlines() or ["nothing was said"])[-1]
                    raise ended_early(last, any(process.returncode == BAD_DATA for process in processes))
                time.sleep(LOOK)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.terminate()
            for process in processes:
                _end(process)


def _start(study: str, site: Site, i: int, count: int, said: IO[str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "reweigh.lab.search.serve"], stdin=subprocess.PIPE, stdout=said, stderr=said, text=True
    )
    assert process.stdin is not None
    where = device_for(i, site.where)
    threads = None if str(where.get("device", "")).startswith("cuda") else max(1, (os.cpu_count() or 1) // count)
    job = {"study": study, "site": replace(site, where=where).to_mapping(), "threads": threads}
    # Through a pipe, not the command line: a database URL may hold a password. It stays open as long as we live.
    process.stdin.write(json.dumps(job) + "\n")
    process.stdin.flush()
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def device_for(i: int, where: Mapping[str, Any]) -> dict[str, Any]:
    """Where worker number `i` works: as given, else on the GPUs in turn."""
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if where.get("device", "auto") == "auto" and gpus:
        return {**where, "device": f"cuda:{i % gpus}"}
    return dict(where)
