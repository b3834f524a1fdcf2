"""Ask any criterion what it emphasises, and get a weighting back from it.

    python examples/what_does_it_emphasise.py

The answer is a curve over p, the probability of the label: how much an example counts, and whether the direction of
its derivative is still cross entropy's (cosine 1).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from reweigh import Curve, emphasis_of


def polynomial(logits: Tensor, target: Tensor) -> Tensor:
    """A loss of one's own: cross entropy plus 1 - p."""
    p = logits.softmax(1).gather(1, target[:, None])[:, 0]
    return (-p.log() + (1 - p)).mean()


def main() -> None:
    """Three criteria, five points each; and one of them as a curve to train with."""
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
