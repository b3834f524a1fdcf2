"""Write the tables of docs/labels.md from benchmarks/results/suspects-*.csv and *.json.

python benchmarks/suspects_guide.py          rewrites the part of docs/labels.md between its two markers
"""

from __future__ import annotations

import csv
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from suspects_problems import DATA, PLAIN, PROBLEMS

DOCS = Path(__file__).parent.parent / "docs" / "labels.md"
RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"

Line = dict[str, str]

CLEANLAB, AUM = "cleanlab, self_confidence", "aum, threshold samples"
SHOWN = {
    "duel": "one run, `duel`",
    "mean-p": "one run, `mean-p`",
    "final-p": "one run, `final-p`",
    AUM: "two runs, `aum` with threshold samples",
    CLEANLAB: "five folds, cleanlab",
}


def main() -> None:
    """Rewrite the page."""
    available = [data for data in DATA if (RESULTS / f"suspects-{data}.csv").exists()]
    lines = read(RESULTS / f"suspects-{data}.csv" for data in available)
    retrained_lines = read(path for data in available if (path := RESULTS / f"suspects-{data}-retrained.csv").exists())
    about = {data: json.loads((RESULTS / f"suspects-{data}.json").read_text()) for data in available}
    parts = [settings(about), compared(lines), *(ranking(lines, data) for data in available), alarms(lines)]
    text = DOCS.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    tables = "\n".join([*parts, retrained(retrained_lines)])
    DOCS.write_text(f"{before}{BEGIN}\n{tables}\n{END}{after}", "utf-8")


def read(paths: Iterable[Path]) -> list[Line]:
    """Read all lines of some tables."""
    lines: list[Line] = []
    for path in paths:
        with path.open(newline="") as file:
            lines += csv.DictReader(file)
    return lines


def grouped(lines: Sequence[Line], *keys: str) -> dict[tuple[str, ...], list[Line]]:
    """Group the lines by the values of some columns."""
    groups: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        groups.setdefault(tuple(line[key] for key in keys), []).append(line)
    return groups


def average(lines: Sequence[Line], column: str) -> float:
    """Return the mean over seeds, NaN if there is none."""
    values = [float(line[column]) for line in lines if line[column]]
    return statistics.fmean(values) if values else math.nan


def mean(lines: Sequence[Line], column: str, digits: int = 3, factor: float = 1.0) -> str:
    """Format the mean over seeds, as a dash if there is none."""
    return formatted(factor * average(lines, column), digits)


def formatted(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def settings(about: dict[str, dict[str, Any]]) -> str:
    """Format the table of nets, schedules and devices."""
    rows = ["| data | net | iterations | batch size | precision | device |", "|---|---|---|---|---|---|"]
    for data, one in about.items():
        run: dict[str, Any] = next(iter(one.get("settings", {}).values()), {})
        made = next(made for made in one["made"] if "one run" in made["stages"])
        where = "one CPU core" if made["run_on"] == "cpu" else made["device"]
        cells = (run.get(name, usual) for name, usual in (("iterations", "default"), ("batch_size", 128)))
        rows.append(row(data, run.get("net", "default"), *cells, run.get("precision", "fp32"), where))
    return "\n".join(rows) + "\n"


def compared(lines: Sequence[Line]) -> str:
    """Format the summary: average precision of the default and its rivals, and its share of the folds' cost."""
    rows = [
        "| average precision | seeds | weighting | one run | cleanlab on 5 folds | cleanlab on 5 folds, CCE "
        "| AUM, CCE | cost of one run, % of the CCE folds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    groups = grouped(lines, "problem", "taught", "how")
    for problem in PROBLEMS:
        weighting = problem.robust[0]
        one = groups.get((problem.name, weighting, "duel"), [])
        if not one or not one[0]["average_precision"]:
            continue
        folds = groups.get((problem.name, PLAIN, CLEANLAB), [])
        rivals = (
            groups.get((problem.name, weighting, CLEANLAB), []),
            folds,
            groups.get((problem.name, PLAIN, AUM), []),
        )
        precisions = (mean(group, "average_precision") for group in (one, *rivals))
        share = 100 * average(one, "seconds") / average(folds, "seconds")
        rows.append(row(problem.name, len(one), weighting, *precisions, formatted(share, 0)))
    return "\n".join(rows) + "\n"


def ranking(lines: Sequence[Line], data: str) -> str:
    """Format the table of one data set with noise: ranking, issues, estimated rate, cost."""
    rows = [
        f"| {data} | weighting | method | seeds | AUROC | average precision | precision = recall at the true rate "
        "| precision of issues | recall of issues | estimated (true) rate | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines = [line for line in lines if line["data"] == data]
    for (problem, weighting, how), group in grouped(lines, "problem", "taught", "how").items():
        if (
            how not in SHOWN
            or not group[0]["average_precision"]
            or (weighting == PLAIN and how in ("mean-p", "final-p"))
        ):
            continue
        rates = f"{mean(group, 'rate_estimated')} ({mean(group, 'rate')})"
        cells = [
            *(mean(group, column) for column in ("auroc", "average_precision", "precision_and_recall_at_rate")),
            *(mean(group, column) for column in ("called_precision", "called_recall")),
        ]
        name = problem.removeprefix(f"{data}, ")
        rows.append(row(name, weighting, SHOWN[how], len(group), *cells, rates, mean(group, "seconds", 1)))
    return "\n".join(rows) + "\n"


def alarms(lines: Sequence[Line]) -> str:
    """Format the false positive rates: of all, of the rarest class, of the worst class."""
    rows = [
        "| clean labels classified as wrong, % | weighting | method | seeds | all | rarest class | worst class |",
        "|---|---|---|---|---|---|---|",
    ]
    for (problem, weighting, how), group in grouped(lines, "problem", "taught", "how").items():
        if how not in ("duel", CLEANLAB) or not ("clean" in problem or "unbalanced" in problem):
            continue
        columns = ("false_alarms", "false_alarms_rarest_class", "false_alarms_worst_class")
        rows.append(row(problem, weighting, SHOWN[how], len(group), *(mean(group, c, 2, 100) for c in columns)))
    return "\n".join(rows) + "\n"


def retrained(lines: Sequence[Line]) -> str:
    """Format the test accuracy on given and on corrected labels."""
    rows = [
        "| problem | weighting | labels | seeds | wrong labels, % | final test accuracy, % | standard deviation |",
        "|---|---|---|---|---|---|---|",
    ]
    for (problem, by, labels), group in grouped(lines, "problem", "trained_by", "labels").items():
        final = [100 * float(line["final"]) for line in group]
        spread = f"{statistics.stdev(final):.2f}" if len(final) > 1 else "-"
        wrong, accuracy = mean(group, "wrong_labels", 1, 100), mean(group, "final", 2, 100)
        rows.append(row(problem, by, labels, len(group), wrong, accuracy, spread))
    return "\n".join(rows) + "\n"


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
