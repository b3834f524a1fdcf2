"""The provenance of a benchmark's results."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import reweigh


def provenance(commit: str | None = None) -> dict[str, object]:
    """Return commit, versions and device, without a date, so that equal results give equal files."""
    return {
        "reweigh": reweigh.__version__,
        "commit": commit or head(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": installed("triton"),
        "liger-kernel": installed("liger-kernel"),
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def head() -> str:
    """Return the commit, with "-dirty" if sources or benchmarks differ from it."""

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    commit, changes = git("rev-parse", "HEAD"), git("status", "--porcelain", "--", "../src", ".", ":!results")
    return "unknown" if commit is None else commit + ("-dirty" if changes else "")


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
