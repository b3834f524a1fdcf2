"""Write the rows of runs as TensorBoard event files (extra `tensorboard`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reweigh.errors import require
from reweigh.lab.report.collect import RunSummary


def write_events(runs: Iterable[RunSummary], root: Path) -> list[Path]:
    """Write a folder of event files per run, with its numbers as scalars and its histograms of p as histograms.

    Args:
        runs: finished or not.
        root: TensorBoard's --logdir. Each run gets a folder of its name, which must not exist: TensorBoard would show
            its events twice.

    Returns:
        the folders.
    """
    require("tensorboard", extra="tensorboard")
    from torch.utils.tensorboard.writer import SummaryWriter

    chosen = list(runs)
    folders = [root / run.folder.resolve().name for run in chosen]
    for i, folder in enumerate(folders):
        if folder in folders[:i]:
            both = f"{chosen[i].folder} and {chosen[folders.index(folder)].folder} have the same name"
            raise ValueError(f"{both}: TensorBoard would show them as one run")
        if folder.exists():
            raise ValueError(f"{folder}: already exists; TensorBoard would show its events twice")
    for run, folder in zip(chosen, folders, strict=True):
        writer: Any = SummaryWriter(str(folder))
        for row in run.rows:
            for name, value in row.items():
                if isinstance(value, int | float) and name != "step":
                    writer.add_scalar(_tag(name), value, row["step"])
                elif "histogram" in name and isinstance(value, list):
                    _histogram(writer, _tag(name), value, row["step"])
        writer.close()
    return folders


def _tag(name: str) -> str:
    """Return the tag of a column: the part before its first underscore is TensorBoard's section.

    >>> _tag("test_accuracy"), _tag("lr")
    ('test/accuracy', 'run/lr')
    """
    section, _, rest = name.partition("_")
    return f"{section}/{rest}" if rest else f"run/{name}"


def _histogram(writer: Any, tag: str, shares: list[float], step: int) -> None:
    """Write shares in equal bins of [0, 1] as counts at the middles of the bins."""
    size = len(shares)
    middles = [(i + 0.5) / size for i in range(size)]
    writer.add_histogram_raw(
        tag,
        min=0.0,
        max=1.0,
        num=sum(shares),
        sum=sum(share * middle for share, middle in zip(shares, middles, strict=True)),
        sum_squares=sum(share * middle**2 for share, middle in zip(shares, middles, strict=True)),
        bucket_limits=[(i + 1) / size for i in range(size)],
        bucket_counts=shares,
        global_step=step,
    )
