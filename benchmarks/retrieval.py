"""Measure time and memory of scoring rankings.

    python benchmarks/retrieval.py --out benchmarks/results/retrieval-cpu.json                  (ten minutes)
    python benchmarks/retrieval.py --device cuda --out benchmarks/results/retrieval-h200.json   (a minute)

"mars" has the size of MARS: 1,980 queries x 12,180 tracklets x 1,024 random numbers, with as many persons, distractors
and junk. Targets: under 10 s on two CPU cores, under 0.5 s on a GPU. "million" has as many queries, and 10^6 tracklets
of 50,000 persons, which are never in memory at once. Target: under 2 GB. Each part runs in its own process and reports
its peak memory. CPU time of all threads is recorded, too, since other load on the machine affects it less.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from provenance import provenance
from torch import Tensor

from reweigh.lab.retrieval import rank, score
from reweigh.streams import mix, numpy_generator

QUERIES, WIDTH, CAMERAS = 1980, 1024, 6
MARS = {"labelled": 8062, "persons": 634, "distractors": 3248, "junk": 870}
MILLION = {"labelled": 700_000, "persons": 50_000, "distractors": 270_000, "junk": 30_000}
UNIT = 1 if sys.platform == "darwin" else 1024  # bytes per unit of ru_maxrss


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--skip-million", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    parts = {"mars": (measure_mars, options.rounds)}
    if not options.skip_million:
        parts["million"] = (measure_million, 1)
    found = {}
    for name, (measure, rounds) in parts.items():
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found[name] = pool.apply(measure, (options.device, options.threads, rounds))
        print(name, json.dumps(found[name]))
    options.out.write_text(json.dumps({"provenance": provenance(), "device": options.device, **found}, indent=2) + "\n")


def people(sizes: dict[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Draw persons and cameras of a gallery, and the rows of queries."""
    random = numpy_generator(0, "people")
    persons = np.concatenate(
        [
            random.integers(1, sizes["persons"] + 1, sizes["labelled"]),
            np.zeros(sizes["distractors"], np.int64),
            np.full(sizes["junk"], -1),
        ]
    )
    persons = random.permutation(persons)
    queries = np.sort(random.permutation(np.flatnonzero(persons > 0))[:QUERIES])
    return persons, random.integers(1, CAMERAS + 1, len(persons)), queries


class RandomFeatures:
    """Features drawn when they are read; the same rows give the same numbers."""

    def __init__(self, rows: int, device: str) -> None:
        self.rows, self.device = rows, device

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, rows: slice) -> Tensor:
        generator = torch.Generator(self.device).manual_seed(mix(0, "features", rows.start))
        return torch.randn(rows.stop - rows.start, WIDTH, generator=generator, device=self.device)


def measure_mars(device: str, threads: int, rounds: int) -> dict[str, Any]:
    """Measure the seconds of scoring and of ranking the first ten items, per round."""
    torch.set_num_threads(threads)
    persons, cameras, queries = people(MARS)
    features = RandomFeatures(len(persons), "cpu")[0 : len(persons)].numpy()
    arguments = (features[queries], persons[queries], cameras[queries], features, persons, cameras)
    score(*arguments, device=device)  # warm-up: the first call loads libraries
    scoring, computing, ranking = [], [], []
    for _ in range(rounds):
        start, cpu = time.perf_counter(), time.process_time()
        scores = score(*arguments, device=device)
        middle = time.perf_counter()
        computing.append(time.process_time() - cpu)
        rank(*arguments, device=device)
        scoring.append(middle - start)
        ranking.append(time.perf_counter() - middle)
    return {
        "queries": len(queries),
        "gallery": len(persons),
        "width": WIDTH,
        "matches": round(float(scores.matches.mean()), 2),
        "mean_ap": scores.mean_ap,
        "score_seconds": [round(seconds, 4) for seconds in scoring],
        "score_cpu_seconds": [round(seconds, 4) for seconds in computing],
        "rank_seconds": [round(seconds, 4) for seconds in ranking],
        **memory(device),
    }


def measure_million(device: str, threads: int, rounds: int) -> dict[str, Any]:
    """Measure seconds and peak memory with a gallery that is read in blocks."""
    torch.set_num_threads(threads)
    persons, cameras, queries = people(MILLION)
    before = memory(device)["peak_bytes"]
    query_features = RandomFeatures(len(queries), device)[0 : len(queries)]
    seconds, computing = [], []
    for _ in range(rounds):
        start, cpu = time.perf_counter(), time.process_time()
        scores = score(
            query_features,
            persons[queries],
            cameras[queries],
            RandomFeatures(len(persons), device),
            persons,
            cameras,
            device=device,
        )
        seconds.append(time.perf_counter() - start)
        computing.append(time.process_time() - cpu)
    return {
        "queries": len(queries),
        "gallery": len(persons),
        "width": WIDTH,
        "matches": round(float(scores.matches.mean()), 2),
        "mean_ap": scores.mean_ap,
        "score_seconds": [round(value, 2) for value in seconds],
        "score_cpu_seconds": [round(value, 2) for value in computing],
        "bytes_before": before,
        **memory(device),
    }


def memory(device: str) -> dict[str, int]:
    """Return this process's peak memory on the host and on the GPU."""
    peak = {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT}
    if device.startswith("cuda"):
        peak["peak_gpu_bytes"] = torch.cuda.max_memory_allocated()
    return peak


if __name__ == "__main__":
    main()
