"""Count how often the 95 % interval of the estimated noise rate covers the true rate, over simulated data sets.

python benchmarks/noise_interval.py          two minutes on one CPU core; 100 data sets per line

Classes are Gaussians that overlap more or less; the probabilities are those of a model that knows the true ones.
"""

from __future__ import annotations

import numpy as np

from reweigh.labels import estimate_noise

PROBLEMS = (  # examples, classes, rate, kind, separation
    (500, 3, 0.1, "symmetric", 3.0),
    (500, 3, 0.1, "symmetric", 2.0),
    (500, 3, 0.3, "pair", 2.0),
    (2000, 10, 0.2, "symmetric", 3.0),
    (2000, 10, 0.4, "symmetric", 2.5),
    (2000, 10, 0.05, "symmetric", 3.0),
)
DATA_SETS, BOOTSTRAP = 100, 40


def main() -> None:
    for n, classes, rate, kind, separation in PROBLEMS:
        covered, width, accuracy = 0, 0.0, 0.0
        for seed in range(DATA_SETS):
            rng = np.random.default_rng(seed)
            truth = rng.integers(0, classes, n)
            logits = separation * (rng.normal(size=(n, classes)) + separation * np.eye(classes)[truth])
            p = np.exp(logits - logits.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            labels, wrong = truth.copy(), rng.random(n) < rate
            step = rng.integers(1, classes, wrong.sum()) if kind == "symmetric" else 1
            labels[wrong] = (truth[wrong] + step) % classes
            noise = estimate_noise(labels, p, bootstrap=BOOTSTRAP)
            covered += noise.low <= float((labels != truth).mean()) <= noise.high
            width += (noise.high - noise.low) / DATA_SETS
            accuracy += float((p.argmax(axis=1) == truth).mean()) / DATA_SETS
        what = f"{n} examples, {classes} classes, {kind} {rate:g}, accuracy {accuracy:.3f}"
        print(f"{what}: {covered} of {DATA_SETS} covered, {width:.3f} wide", flush=True)


if __name__ == "__main__":
    main()
