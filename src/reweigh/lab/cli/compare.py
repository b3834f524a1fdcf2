"""`reweigh compare`: train several losses or methods on the same data, over several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.lab.cli.exits import DIVERGED, ExitError
from reweigh.lab.cli.options import DEFAULTS, EPOCHS, Capture, Compile, Jobs, Json, Kernels, RunsRoot, with_fields
from reweigh.lab.cli.paths import PAGE, check_output
from reweigh.lab.cli.runner import check_done, run_several
from reweigh.lab.cli.runs import group_as_mapping, groups_table
from reweigh.lab.cli.terminal import console, echo, print_json
from reweigh.lab.cli.train import choose_run, is_done, make_run
from reweigh.lab.spec import describe, parse

if TYPE_CHECKING:
    from reweigh.lab.report import Group

_OBJECTIVES = ("weighting", "loss", "method")


@with_fields([field for field in (*describe(), EPOCHS) if field.name not in (*_OBJECTIVES, "seed")], defaults=DEFAULTS)
def compare(
    fields: dict[str, Any],
    objectives: Annotated[
        list[str], typer.Argument(metavar='CCE "GCE(0.7)" ...', help="Weightings, losses or methods, by name.")
    ],
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Runs of each, with the seeds 0, 1, 2, ...")] = 3,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML page to write.")] = Path(
        "compare.html"
    ),
    runs: RunsRoot = Path("runs"),
    jobs: Jobs = 1,
    capture: Capture = True,
    kernels: Kernels = True,
    compiled: Compile = None,
    as_json: Json = False,
) -> None:
    """Train several losses or methods on the same data, and compare them over seeds.

    All other settings are the same for all, also the learning rate: use reweigh search where it matters. What is not
    set is chosen for the data, as by reweigh train. Runs that are done are not repeated. The page is that of reweigh
    report.

    Example: reweigh compare CCE "GCE(0.7)" "ELR(3, 0.7)" --data photos/
    """
    from reweigh.lab.record.files import replace_file
    from reweigh.lab.report import collect, group, report_page
    from reweigh.lab.run import Speed

    check_output("--output", output, PAGE)
    kinds = {text: _kind_of(text) for text in objectives}
    chosen = choose_run(fields | {"weighting": "CCE"}).to_mapping()
    del chosen["weighting"]
    planned = [make_run(chosen | {kind: text, "seed": seed}) for text, kind in kinds.items() for seed in range(seeds)]
    for run in planned:
        is_done(run, runs)  # raises if the data have changed: the mean would mix runs on different data
    outcomes = run_several(planned, runs, jobs, Speed(capture, kernels, compiled))
    check_done(outcomes)
    collected = collect([outcome.folder for outcome in outcomes])
    page = report_page(collected, "Comparison")
    replace_file(output, lambda file: file.write(page.encode()))
    groups = group(collected.runs)
    if as_json:
        print_json({"results": [group_as_mapping(member) for member in groups], "file": str(output)})
    else:
        console().print(groups_table(groups))
        echo(output)
    _check_some_converged(groups)


def _kind_of(text: str) -> str:
    """Return whether a text names a weighting, a loss or a method."""
    from reweigh.lab.objectives import KINDS, kind_of

    name = parse(text).name
    kind = kind_of(name)
    if kind is None:
        from reweigh.checks import nearest

        names = [each.__name__ for classes in KINDS.values() for each in classes]
        raise ValueError(f"no weighting, loss or method is named {name!r}; {nearest(name, names)}")
    return kind


def _check_some_converged(groups: Sequence[Group]) -> None:
    """Raise `ExitError` if all runs of one objective diverged: nothing was compared."""
    lost = [member.label for member in groups if all(run.diverged is not None for run in member.runs)]
    if lost:
        raise ExitError(DIVERGED, f"all runs diverged of {', '.join(lost)}; try a smaller --lr")
