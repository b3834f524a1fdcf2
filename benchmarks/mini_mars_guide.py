"""Write the table of docs/retrieval.md from benchmarks/results/mini-mars.csv.

python benchmarks/mini_mars_guide.py        rewrites the part of docs/retrieval.md between its two markers
"""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs" / "retrieval.md"
RESULTS = Path(__file__).parent / "results" / "mini-mars.csv"
BEGIN, END = "<!-- mini-mars: begin -->\n", "<!-- mini-mars: end -->\n"
COLUMNS = ("map_official", "cmc1_official", "map_python", "cmc1_python")
ABNORMAL = {"none": "none", "frames": "40 %"}


def main() -> None:
    """Rewrite the table."""
    head, rest = DOCS.read_text(encoding="utf-8").split(BEGIN)
    DOCS.write_text(head + BEGIN + table() + END + rest.split(END)[1], encoding="utf-8")


def table() -> str:
    """Format a line for each kind of noise and each loss or method."""
    with RESULTS.open(newline="", encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["role"] == "reported"]
    rows = [
        "| abnormal frames | loss or method | lr | mAP, official | CMC-1, official | mAP, python | CMC-1, python |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for noise, words in ABNORMAL.items():
        here = [line for line in lines if line["noise"] == noise]
        for objective in dict.fromkeys(line["taught"] for line in here):
            runs = [line for line in here if line["taught"] == objective]
            lr = "-" if objective == "untrained" else runs[0]["lr"]
            rows.append(f"| {words} | {objective} | {lr} | {' | '.join(spread(runs, name) for name in COLUMNS)} |")
    return "\n".join(rows) + "\n"


def spread(runs: list[dict[str, str]], column: str) -> str:
    values = [float(run[column]) for run in runs]
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{deviation}"


if __name__ == "__main__":
    main()
