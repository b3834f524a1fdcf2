"""The tables of docs/suspects.md, from benchmarks/results/suspects-*.csv.

python benchmarks/suspects_guide.py          rewrites the part of docs/suspects.md between its two markers
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs" / "suspects.md"
RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"

Line = dict[str, str]

SHOWN = {
    "duel": "one run, `duel`",
    "mean-p": "one run, `mean-p`",
    "final-p": "one run, `final-p`",
    "aum, threshold samples": "two runs, `aum` with threshold samples",
    "cleanlab, self_confidence": "five folds, cleanlab",
}


def main() -> None:
    """Rewrite the page."""
    found = read(sorted(p for p in RESULTS.glob("suspects-*.csv") if "retrained" not in p.name))
    again = read(sorted(RESULTS.glob("suspects-*-retrained.csv")))
    text = DOCS.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    DOCS.write_text(f"{before}{BEGIN}\n{ranking(found)}\n{alarms(found)}\n{retrained(again)}\n{END}{after}", "utf-8")


def read(paths: Iterable[Path]) -> list[Line]:
    """All lines of some tables."""
    lines: list[Line] = []
    for path in paths:
        with path.open(newline="") as file:
            lines += csv.DictReader(file)
    return lines


def grouped(lines: Sequence[Line], *keys: str) -> dict[tuple[str, ...], list[Line]]:
    """The lines of all seeds together, by everything else."""
    groups: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        groups.setdefault(tuple(line[key] for key in keys), []).append(line)
    return groups


def mean(lines: Sequence[Line], column: str, digits: int = 3, factor: float = 1.0) -> str:
    """The mean over seeds, a dash where nothing was measured."""
    values = [factor * float(line[column]) for line in lines if line[column]]
    return f"{statistics.fmean(values):.{digits}f}" if values else "-"


def ranking(lines: Sequence[Line]) -> str:
    """Where labels were flipped: the ranking, what was called wrong, the rate, the cost."""
    rows = [
        "| problem | taught by | found by | seeds | AUROC | average precision | precision = recall at the true rate "
        "| called wrong: precision | recall | rate, estimated (true) | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (problem, taught, how), group in grouped(lines, "problem", "taught", "how").items():
        if how not in SHOWN or not group[0]["average_precision"] or (taught == "CCE" and how in ("mean-p", "final-p")):
            continue
        rates = f"{mean(group, 'rate_estimated')} ({mean(group, 'rate')})"
        cells = [
            *(mean(group, column) for column in ("auroc", "average_precision", "precision_and_recall_at_rate")),
            *(mean(group, column) for column in ("called_precision", "called_recall")),
        ]
        rows.append(row(problem, taught, SHOWN[how], len(group), *cells, rates, mean(group, "seconds", 1)))
    return "\n".join(rows) + "\n"


def alarms(lines: Sequence[Line]) -> str:
    """Right labels that were called wrong, in per cent: of all, of the rarest class, of the worst class."""
    rows = [
        "| right labels called wrong, per cent | taught by | found by | seeds | all | rarest class | worst class |",
        "|---|---|---|---|---|---|---|",
    ]
    for (problem, taught, how), group in grouped(lines, "problem", "taught", "how").items():
        if how not in ("duel", "cleanlab, self_confidence") or not ("clean" in problem or "unbalanced" in problem):
            continue
        columns = ("false_alarms", "false_alarms_rarest_class", "false_alarms_worst_class")
        rows.append(row(problem, taught, SHOWN[how], len(group), *(mean(group, c, 2, 100) for c in columns)))
    return "\n".join(rows) + "\n"


def retrained(lines: Sequence[Line]) -> str:
    """Test accuracy with the labels as given and as corrected."""
    rows = [
        "| problem | trained by | labels | seeds | wrong labels, per cent | test accuracy at the end | deviation |",
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
