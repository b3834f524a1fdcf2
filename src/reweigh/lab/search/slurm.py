"""A search as a SLURM job array, whose tasks all run the same command and so join one study."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from reweigh.lab.search.storage import is_sqlite

TEMPLATE = """\
#!/bin/bash
# {workers} workers for one search. Before: export REWEIGH_STORAGE=postgresql://USER:PASSWORD@HOST/NAME
# Then: sbatch FILE, in a folder that all nodes share; the runs are written below it.
#SBATCH --job-name=reweigh-search
#SBATCH --array=0-{last}
#SBATCH --cpus-per-task=4
#SBATCH --gpus-per-task=1
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --output=reweigh-search-%A-%a.out
# SIGTERM arrives two minutes before the time limit: the worker writes a checkpoint and releases its trial.
# Tasks may be added (sbatch again), cancelled, or lost with their node; the last one prints the outcome.
set -euo pipefail
: "${{REWEIGH_STORAGE:?set it to the URL of a database that all nodes reach}}"
exec srun {command}
"""


def slurm_script(command: Sequence[str], workers: int, storage: str | None) -> str:
    """Return the script of a job array whose tasks run `command`; raise ValueError for SQLite, which needs one host."""
    if storage is None or is_sqlite(storage):
        raise ValueError(
            "workers on several machines need a database that all of them reach: "
            "give --storage postgresql://USER@HOST/NAME (SQLite's locks do not work over a network)"
        )
    if workers < 1:
        raise ValueError(f"workers is {workers}; expected at least 1")
    return TEMPLATE.format(workers=workers, last=workers - 1, command=shlex.join(command))


def options(values: Mapping[str, Any]) -> list[str]:
    """Return values as command-line options.

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
