"""Measure the training throughput of one run, and of several runs on one GPU.

    python benchmarks/harness.py --out benchmarks/results/harness.json          (a CUDA device; about four minutes)
    python benchmarks/harness.py --figure benchmarks/results/harness.json       (draws harness.png next to it)

Synthetic images in the format of CIFAR, batch 256, DM(0.5, 8), momentum, padding, crop and flip. Several runs are
threads with a CUDA stream each, as in `reweigh.lab.run.jobs`. Targets on one H200, in images per second: 65,000 for one
ResNet-44, 100,000 for eight together. Rows that the file already has are kept; give a new file to measure all.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from provenance import provenance
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from reweigh.lab.batches import Batch, Normalisation, Resident, Shuffled
from reweigh.lab.methods.criterion import ByCriterion
from reweigh.lab.nets.registry import build
from reweigh.lab.run.machine import autocast_of, machine
from reweigh.lab.run.parts import criterion_of
from reweigh.lab.spec import Run
from reweigh.lab.train.captured import CapturedStep, Speed, compile_net, make_evaluator
from reweigh.lab.train.convolution import use_small_convolutions
from reweigh.lab.train.optimisers import build_optimiser
from reweigh.lab.train.step import EagerStep
from reweigh.streams import generator

BATCH, IMAGES, CLASSES = 256, 50_000, 10
CUDA = torch.device("cuda")
PLAIN = Speed(capture=False, kernels=False, compile=False)
FASTEST = Speed(capture=True, kernels=True, compile=True)
SETTINGS: list[tuple[str, str, Speed, bool]] = [
    ("plain eager loop, fp32", "fp32", PLAIN, False),
    ("captured, fp32", "fp32", Speed(kernels=False, compile=False), False),
    ("captured, tf32", "tf32", Speed(kernels=False, compile=False), False),
    ("captured, bf16", "bf16", Speed(kernels=False, compile=False), False),
    ("captured, bf16, compiled", "bf16", Speed(kernels=False, compile=True), False),
    ("captured, bf16, own convolutions", "bf16", Speed(compile=False), False),
    ("captured, bf16, own convolutions, deterministic", "bf16", Speed(compile=False), True),
    ("captured, bf16, own convolutions, compiled", "bf16", FASTEST, False),
]
Iteration = Callable[[int], Tensor]


def main() -> None:
    """Measure, print and write the JSON, or draw one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the JSON file to write")
    parser.add_argument("--figure", type=Path, help="a JSON file to draw")
    parser.add_argument("--commit", help="the commit that is measured, if this is not a git checkout")
    options = parser.parse_args()
    if options.out is not None:
        about: dict[str, Any] = provenance(options.commit) | {"batch": BATCH, "images": IMAGES}
        commit = about.pop("commit")
        rows = json.loads(options.out.read_text())["results"] if options.out.exists() else []
        for row in measure([(row["what"], row["net"], row["jobs"]) for row in rows]):
            rows.append(row | {"commit": commit})
            print(json.dumps(rows[-1]), flush=True)
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps({"provenance": about, "results": rows}, indent=1) + "\n")
    if options.figure is not None:
        draw(options.figure)


def measure(done: list[tuple[str, str, int]]) -> Iterator[dict[str, Any]]:
    """Yield a row for each measurement that is not in `done`."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (IMAGES, 32, 32, 3), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, IMAGES)
    work: dict[tuple[str, str, int], Callable[[], dict[str, Any]]] = {}

    def plan(name: str, net: str, jobs: int, precision: str, speed: Speed, deterministic: bool = False) -> None:
        work[name, net, jobs] = lambda: together(images, labels, net, jobs, precision, speed, deterministic)

    work["DataLoader, a transform per image, eager fp32", "resnet44", 1] = lambda: with_loader(images, labels)
    for name, precision, speed, deterministic in SETTINGS:
        plan(name, "resnet44", 1, precision, speed, deterministic)
    for net, jobs in [("resnet44", n) for n in (2, 3, 4, 6, 8, 12)] + [("resnet56", n) for n in (1, 4, 6)]:
        plan(SETTINGS[-1][0], net, jobs, "bf16", FASTEST)
    plan(SETTINGS[-3][0], "resnet44", 4, "bf16", SETTINGS[-3][2])
    work["evaluation, eager, bf16", "resnet44", 1] = lambda: evaluation(images, labels, PLAIN)
    # with the own convolutions, although the name of the row does not have them
    work["evaluation, captured, bf16", "resnet44", 1] = lambda: evaluation(images, labels, FASTEST)
    for (name, net, jobs), measured in work.items():
        if (name, net, jobs) not in done:
            yield {"what": name, "net": net, "jobs": jobs} | measured()


def trainer(
    images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], run: Run, speed: Speed, channels_last: bool
) -> EagerStep:
    """Return the iteration that `execute` would assemble, without data set and record."""
    net = build(run.net, CLASSES, generator=generator(run.seed, "init")).to(CUDA)
    if channels_last:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    batches = Resident(
        images,
        labels,
        order=Shuffled(len(images), BATCH, run.seed),
        seed=run.seed,
        augmentation="pad-crop-flip",
        normalisation=Normalisation((0.5,) * 3, (0.25,) * 3),
        device=CUDA,
        channels_last=channels_last,
    )
    if speed.kernels:
        use_small_convolutions(net)
    if speed.compile:
        compile_net(net)
    net.train()
    return EagerStep(
        ByCriterion(net, criterion_of(run, CUDA)[0]),
        batches,
        build_optimiser(net, run),
        total=run.iterations,
        learning_rate=lambda step: 0.1,
        autocast=autocast_of(run, CUDA),
    )


def together(
    images: np.ndarray[Any, Any],
    labels: np.ndarray[Any, Any],
    net: str,
    jobs: int,
    precision: str,
    speed: Speed,
    deterministic: bool = False,
) -> dict[str, Any]:
    """Return the images per second of all jobs, each in a thread with its own stream, and the peak memory."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    runs = [settings(net, seed, precision, deterministic) for seed in range(jobs)]
    began = time.perf_counter()
    with machine(runs[0]):
        eager = [trainer(images, labels, run, speed, speed is not PLAIN) for run in runs]
        streams = [torch.cuda.Stream() for _ in runs]  # type: ignore[no-untyped-call]
        each: list[Iteration] = [CapturedStep(job) if speed.capture else job for job in eager]

        def work(job: int, steps: range) -> None:
            with torch.cuda.stream(streams[job]):
                for step in steps:
                    each[job](step)

        def go(steps: range) -> None:
            deque(pool.map(work, range(jobs), [steps] * jobs), maxlen=0)
            torch.cuda.synchronize()

        pool = ThreadPoolExecutor(jobs)
        go(range(6))
        ready = time.perf_counter() - began
        return timed(go, jobs, max(20, 120 // jobs)) | {
            "peak_GiB": round((torch.cuda.max_memory_allocated() - before) / 2**30, 2),
            "seconds_to_begin": round(ready, 1),
        }


def timed(go: Callable[[range], None], jobs: int, steps: int) -> dict[str, Any]:
    """Return the median and the extremes of five readings."""
    readings = []
    for reading in range(5):
        start = time.perf_counter()
        go(range(6 + reading * steps, 6 + (reading + 1) * steps))
        readings.append(steps * jobs * BATCH / (time.perf_counter() - start))
    readings.sort()
    return {"images_per_second": round(readings[2]), "range": [round(readings[0]), round(readings[-1])]}


def settings(net: str, seed: int, precision: str, deterministic: bool = False) -> Run:
    return Run(
        data="synthetic",
        net=net,
        weighting="DM(0.5, 8)",
        iterations=1_000_000,
        batch_size=BATCH,
        lr=0.1,
        seed=seed,
        precision=precision,  # type: ignore[arg-type]
        deterministic=deterministic,
    )


def evaluation(images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], speed: Speed) -> dict[str, Any]:
    """Measure one evaluation of all 50,000 images, without compilation."""
    run = settings("resnet44", 0, "bf16")
    with machine(run), torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        eager = trainer(images, labels, run, Speed(speed.capture, speed.kernels, False), True)
        evaluate = make_evaluator(speed, eager.autocast, 1024, lambda: None)
        seconds = []
        for _ in range(4):
            torch.cuda.synchronize()
            start = time.perf_counter()
            evaluate(eager.method.predictor, eager.batches, lambda z, y, i: eager.method.weights(z, y, i, 0))
            seconds.append(time.perf_counter() - start)
    return {"images_per_second": round(IMAGES / min(seconds)), "seconds": round(min(seconds), 3)}


class Images(Dataset[tuple[Tensor, int]]):
    """Transforms one image at a time with Pillow, as training scripts commonly do."""

    def __init__(self, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        image = ImageOps.expand(Image.fromarray(self.images[i]), 4)
        top, left, flip = (int(draw) for draw in torch.randint(0, 9, (3,)))
        image = image.crop((left, top, left + 32, top + 32))
        if flip % 2:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).to(torch.float32)
        return pixels.div_(255).sub_(0.5).div_(0.25), int(self.labels[i])


def with_loader(images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Measure the plain loop with a DataLoader."""
    run = settings("resnet44", 0, "fp32")
    workers = min(16, os.cpu_count() or 1)
    loader = DataLoader(
        Images(images, labels), BATCH, shuffle=True, drop_last=True, num_workers=workers, pin_memory=True
    )

    def batches() -> Iterator[Batch]:
        while True:
            for inputs, target in loader:
                index = torch.zeros(BATCH, dtype=torch.int64, device=CUDA)
                yield Batch(inputs.to(CUDA, non_blocking=True), target.to(CUDA, non_blocking=True), index)

    with machine(run):
        eager, upcoming = trainer(images, labels, run, PLAIN, False), batches()

        def go(steps: range) -> None:
            for step in steps:
                eager.prepare(step)
                eager.learn(next(upcoming), step)
            torch.cuda.synchronize()

        go(range(6))
        return timed(go, 1, 20) | {"workers": workers}


def draw(path: Path) -> None:
    """Draw throughput over the number of jobs."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    content = json.loads(path.read_text())
    rows = content["results"]
    figure, axes = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")
    for net, colour, label in (("resnet44", "#1b6ca8", "ResNet-44"), ("resnet56", "#c8553d", "ResNet-56")):
        points = [
            (row["jobs"], row["images_per_second"] / 1000)
            for row in rows
            if row["net"] == net and row["what"].endswith("own convolutions, compiled")
        ]
        axes.plot(*zip(*points, strict=True), "o-", color=colour, label=label)
    plain = next(row for row in rows if row["what"].startswith("plain"))["images_per_second"] / 1000
    axes.axhline(plain, color="#777777", linewidth=1, linestyle="--", label="plain eager fp32 loop, one ResNet-44")
    axes.set(
        xlabel="simultaneous runs on one GPU",
        ylabel="thousand images per second, all runs",
        title=f"Training throughput, batch {BATCH}, {content['provenance']['device']}",
        ylim=(0, None),
        xticks=sorted({row["jobs"] for row in rows}),
    )
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="center right")
    figure.savefig(path.with_suffix(".png"), dpi=150)


if __name__ == "__main__":
    main()
