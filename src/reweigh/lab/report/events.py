"""The rows of runs as TensorBoard event files (extra `tensorboard`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reweigh.errors import require
from reweigh.lab.report.collect import Told


def write_events(runs: Iterable[Told], root: Path) -> list[Path]:
    """One folder of event files per run: its numbers as scalars, its histograms over p as histograms.

    Args:
        runs: finished or not.
        root: TensorBoard's --logdir; each run gets a folder with its own name, which must not be there yet, since
            events that are written twice are shown twice.

    Returns:
        the folders.
    """
    require("tensorboard", extra="tensorboard")
    from torch.utils.tensorboard.writer import SummaryWriter

    chosen = list(runs)
    folders = [root / told.folder.resolve().name for told in chosen]
    for i, folder in enumerate(folders):
        if folder in folders[:i]:
            both = f"{chosen[i].folder} is called like {chosen[folders.index(folder)].folder}"
            raise ValueError(f"{both}: TensorBoard would show their events as those of one run")
        if folder.exists():
            raise ValueError(f"{folder}: is there already; TensorBoard would show its events twice")
    for told, folder in zip(chosen, folders, strict=True):
        writer: Any = SummaryWriter(str(folder))
        for row in told.rows:
            for name, value in row.items():
                if isinstance(value, int | float) and name != "step":
                    writer.add_scalar(_tag(name), value, row["step"])
                elif "histogram" in name and isinstance(value, list):
                    _histogram(writer, _tag(name), value, row["step"])
        writer.close()
    return folders


def _tag(name: str) -> str:
    """The part before the first underscore becomes TensorBoard's section.

    >>> _tag("test_accuracy"), _tag("lr")
    ('test/accuracy', 'run/lr')
    """
    section, _, rest = name.partition("_")
    return f"{section}/{rest}" if rest else f"run/{name}"


def _histogram(writer: Any, tag: str, shares: list[float], step: int) -> None:
    """Shares by equal bins of [0, 1], told as counts at the middles of the bins."""
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
