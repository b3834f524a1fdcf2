"""Measure the weighting of any loss, and train with it.

    python examples/what_does_it_emphasise.py

The result is a curve over p, the probability of the label: the norm w of the gradient, and its cosine with the
gradient of cross entropy (1: the same direction).

    cross entropy        w = 1.67  1.33  1.00  0.67  0.33   least cosine 1.000
    label smoothing 0.1  w = 1.49  1.15  0.82  0.51  0.18   least cosine 0.980
    polynomial           w = 1.94  1.78  1.50  1.11  0.61   least cosine 1.000
    as a curve, w(0.5) = 1.500, mode 0.0
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from reweigh import Curve, emphasis_of


def polynomial(logits: Tensor, target: Tensor) -> Tensor:
    """Return cross entropy plus 1 - p, as an example of a custom loss."""
    p = logits.softmax(1).gather(1, target[:, None])[:, 0]
    return (-p.log() + (1 - p)).mean()


def main() -> None:
    """Measure three losses at five points, and turn one of them into a `Curve`."""
    criteria: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "cross entropy": nn.CrossEntropyLoss(),
        "label smoothing 0.1": nn.CrossEntropyLoss(label_smoothing=0.1),
        "polynomial": polynomial,
    }
    for name, criterion in criteria.items():
        emphasis = emphasis_of(criterion, num_classes=10, points=5, generator=torch.Generator().manual_seed(0))
        weights = "  ".join(f"{w:.2f}" for w in emphasis.w.tolist())
        print(f"{name:20} w = {weights}   least cosine {emphasis.cosine.min():.3f}")
    emphasis = emphasis_of(polynomial, num_classes=10, points=19)
    curve = Curve(tuple(zip(emphasis.p.tolist(), emphasis.w.tolist(), strict=True)))
    print(f"as a curve, w(0.5) = {curve(0.5):.3f}, mode {curve.mode}")


if __name__ == "__main__":
    main()
