"""`python -m reweigh.lab.search.serve`: a worker process, which reads its job as JSON from standard input.

It releases its trial and exits on SIGTERM, on Ctrl-C, and when standard input is closed because its parent has died.
"""

from __future__ import annotations

import json
import signal
import sys
import threading

from reweigh.errors import DataError
from reweigh.lab.search.storage import silence_optuna, use_database
from reweigh.lab.search.study import join_study
from reweigh.lab.search.worker import ENVIRONMENT_ERRORS, Site, work
from reweigh.lab.search.workers import BAD_DATA


def main() -> None:
    """Read the job, join the study, work on it."""
    job = json.loads(sys.stdin.readline())
    site, name, threads = Site.from_mapping(job["site"]), str(job["study"]), job["threads"]
    leave = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leave.set())
    threading.Thread(target=_leave_at_end, args=(leave,), daemon=True).start()
    import torch

    from reweigh.lab.search.objective import run_objective

    if threads is not None:
        torch.set_num_threads(threads)
    silence_optuna()
    try:
        with use_database(site.storage, site.grace) as storage:
            study, plan = join_study(storage, name)
            objective = run_objective(site.runs, plan.score)
            work(study, plan, objective, where=site.where, should_leave=leave.is_set, beat=site.beat, grace=site.grace)
    except ENVIRONMENT_ERRORS as error:
        print(" ".join(str(error).split()), file=sys.stderr)  # on one line, for `run_workers`
        sys.exit(BAD_DATA if isinstance(error, DataError) else 1)


def _leave_at_end(leave: threading.Event) -> None:
    sys.stdin.read()
    leave.set()


if __name__ == "__main__":
    main()
