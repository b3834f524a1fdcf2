"""A search as a SLURM job array: every task runs the same command and so joins the same study."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from reweigh.lab.search.storage import is_sqlite

TEMPLATE = """\
#!/bin/bash
# {workers} workers for one search. Before: export REWEIGH_STORAGE=postgresql://USER:PASSWORD@HOST/NAME
# Then: sbatch FILE, from the folder that the runs shall lie below; it must be one that all nodes share.
#SBATCH --job-name=reweigh-search
#SBATCH --array=0-{last}
#SBATCH --cpus-per-task=4
#SBATCH --gpus-per-task=1
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --output=reweigh-search-%A-%a.out
# SIGTERM comes two minutes before the time is up: the worker writes a checkpoint and hands its trial to the others.
# Tasks may be added (sbatch again), cancelled, or lost with their node; the last one to work prints the outcome.
set -euo pipefail
: "${{REWEIGH_STORAGE:?set it to the URL of a database that all nodes reach}}"
exec srun {command}
"""


def slurm_script(command: Sequence[str], workers: int, storage: str | None) -> str:
    """The script of a job array whose tasks run `command`; SQLite is refused, for its locks fail between machines."""
    if storage is None or is_sqlite(storage):
        raise ValueError(
            "workers on several machines need a database that all of them reach: "
            "give --storage postgresql://USER@HOST/NAME (SQLite's locks do not work over a network)"
        )
    if workers < 1:
        raise ValueError(f"workers is {workers}; expected at least 1")
    return TEMPLATE.format(workers=workers, last=workers - 1, command=shlex.join(command))


def options(values: Mapping[str, Any]) -> list[str]:
    """Values as options of a command line.

    >>> options({"batch_size": 64, "deterministic": True, "caffe_momentum": False, "betas": (0.9, 0.99)})
    ['--batch-size', '64', '--deterministic', '--no-caffe-momentum', '--betas', '0.9', '0.99']
    """
    words: list[str] = []
    for name, value in values.items():
        dashed = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{dashed}" if value else f"--no-{dashed}")
        elif value is not None:
            words += [f"--{dashed}", *map(str, value if isinstance(value, list | tuple) else [value])]
    return words
