"""Time a batch of 256 images in the format of CIFAR: padding, crop, flip and normalisation.

    python benchmarks/batches.py --out batches.json          (REWEIGH_DATA=... also times loading CIFAR-10)

Targets: under 100 microseconds a batch on a GPU; on two CPU cores at least 10 times the rate of a torch
DataLoader with per-image Pillow transforms and two workers; CIFAR-10 from disk in under 2 seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from reweigh.lab.batches import Normalisation, Resident, Shuffled, channel_statistics

BATCH, IMAGES, SEED = 256, 20_480, 0


def main() -> None:
    """Measure, print and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    out: Path = parser.parse_args().out

    images = np.random.default_rng(SEED).integers(0, 256, (IMAGES, 32, 32, 3), dtype=np.uint8)
    normalisation = channel_statistics(images)
    results: dict[str, Any] = {}
    resident = make(images, normalisation, "cpu")
    # the speed of the machine varies: resident batches are timed before and after the DataLoader
    before = by_threads(resident)
    pillow = with_pillow(images, normalisation)
    after = by_threads(resident)
    results["cpu DataLoader, Pillow, 2 workers"] = microseconds(pillow)
    for threads in before:
        readings = before[threads] + after[threads]
        ratio = round(statistics.median(pillow) / statistics.median(readings), 1)
        results[f"cpu resident, {threads} thread(s)"] = microseconds(readings) | {"ratio of medians (target 10)": ratio}
    if torch.cuda.is_available():
        results |= on_a_gpu(make(images, normalisation, "cuda"))
    results |= loading()

    report = {"question": (__doc__ or "").splitlines()[0], "provenance": provenance(), "results": results}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


def make(images: NDArray[np.uint8], normalisation: Normalisation, device: str) -> Resident:
    """Return the resident batches to measure."""
    return Resident(
        images,
        np.zeros(len(images), np.int64),
        order=Shuffled(len(images), BATCH, SEED),
        seed=SEED,
        augmentation="pad-crop-flip",
        normalisation=normalisation,
        device=device,
    )


def by_threads(resident: Resident) -> dict[int, list[float]]:
    """Return readings with one thread and with torch's default number, by number."""
    most = torch.get_num_threads()
    readings = {}
    for threads in sorted({1, most}):
        torch.set_num_threads(threads)
        readings[threads] = readings_of(resident.batch)
    torch.set_num_threads(most)
    return readings


def readings_of(batch: Callable[[int], object], batches: int = 640) -> list[float]:
    """Return seconds per batch, planning included; a reading is ten batches."""
    for step in range(20):
        batch(step)
    readings = []
    for first in range(0, batches, 10):
        start = time.perf_counter()
        for step in range(first, first + 10):
            batch(step)
        readings.append((time.perf_counter() - start) / 10)
    return readings


class Images(Dataset[tuple[Tensor, int]]):
    """Transforms one image at a time with Pillow, as training scripts commonly do."""

    def __init__(self, images: NDArray[np.uint8], normalisation: Normalisation) -> None:
        self.images = images
        self.mean = torch.tensor(normalisation.mean).view(3, 1, 1)
        self.std = torch.tensor(normalisation.std).view(3, 1, 1)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        image = ImageOps.expand(Image.fromarray(self.images[i]), 4)
        top, left, flip = (int(draw) for draw in torch.randint(0, 9, (3,)))
        image = image.crop((left, top, left + 32, top + 32))
        if flip % 2:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).to(torch.float32).div_(255)
        return pixels.sub_(self.mean).div_(self.std), 0


def with_pillow(images: NDArray[np.uint8], normalisation: Normalisation) -> list[float]:
    """Return seconds per batch of an epoch with two workers that are already running; a reading is ten batches."""
    dataset = Images(images, normalisation)
    generator = torch.Generator().manual_seed(SEED)
    loader = DataLoader(
        dataset, BATCH, shuffle=True, drop_last=True, num_workers=2, persistent_workers=True, generator=generator
    )
    iterator = iter(loader)
    for _ in iterator:
        break
    readings = []
    start, done = time.perf_counter(), 0
    for _ in iterator:
        done += 1
        if done == 10:
            readings.append((time.perf_counter() - start) / 10)
            start, done = time.perf_counter(), 0
    return readings


def on_a_gpu(resident: Resident, batches: int = 100) -> dict[str, Any]:
    """Return microseconds per batch by CUDA events: eager, and replayed from a CUDA graph with the plan copied in."""
    fixed = resident.plan(0).clone()
    resident.assemble(fixed)  # loads kernels before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        resident.assemble(fixed)

    def replay(step: int) -> None:
        fixed.copy_(resident.plan(step))
        graph.replay()

    modes: dict[str, Callable[[int], object]] = {"eager": resident.batch, "graph": replay}
    results = {}
    for name, run in modes.items():
        readings = []
        for _ in range(20):
            start, end = torch.Event("cuda", enable_timing=True), torch.Event("cuda", enable_timing=True)
            start.record()
            for step in range(batches):
                run(step)
            end.record()
            end.synchronize()
            readings.append(start.elapsed_time(end) / 1e3 / batches)
        results[f"cuda {name} (target 100)"] = microseconds(readings[1:])
    return results


def loading() -> dict[str, Any]:
    """Return the seconds to load CIFAR-10 from REWEIGH_DATA, best of three."""
    root = os.environ.get("REWEIGH_DATA")
    if root is None or not any((Path(root) / f"cifar-10-batches-{kind}").is_dir() for kind in ("bin", "py")):
        return {"CIFAR-10 from disk": "not measured: no CIFAR-10 in REWEIGH_DATA"}
    from reweigh.lab.data import cifar

    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        cifar.load(root)
        seconds.append(time.perf_counter() - start)
    return {"CIFAR-10 from disk, seconds (target 2)": {"first": round(seconds[0], 3), "best": round(min(seconds), 3)}}


def microseconds(seconds: list[float]) -> dict[str, float]:
    """Return median and best of the readings, in microseconds."""
    return {"median_us": round(statistics.median(seconds) * 1e6, 1), "best_us": round(min(seconds) * 1e6, 1)}


def provenance() -> dict[str, Any]:
    """Return commit, versions and machine."""

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    changed = git("status", "--porcelain")
    return {
        "commit": git("rev-parse", "HEAD"),
        "uncommitted_changes": None if changed is None else bool(changed),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "pillow": PIL.__version__,
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "seed": SEED,
        "batch": BATCH,
        "images": IMAGES,
    }


if __name__ == "__main__":
    main()
