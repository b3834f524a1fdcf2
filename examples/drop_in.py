"""Replace the loss of an ordinary training loop.

    python examples/drop_in.py

Ten Gaussian classes with 40 % wrong labels, ten seconds on a CPU. Test accuracy on clean labels:

    CCE()                     76.4 %
    GCE(q=0.7)                92.7 %
    DM(lam=0.5, beta=8)       90.0 %

Cross entropy memorises the wrong labels; the same net with GCE or DM does not.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from reweigh import CCE, DM, GCE, Criterion, Weighting


def data(n: int, rate: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return n points of ten unit Gaussians in 20 dimensions, with a share `rate` of wrong labels."""
    rng = torch.Generator().manual_seed(seed)
    means = torch.randn(10, 20, generator=torch.Generator().manual_seed(0))
    target = torch.randint(10, (n,), generator=rng)
    inputs = means[target] + torch.randn(n, 20, generator=rng)
    wrong = torch.rand(n, generator=rng) < rate
    shift = torch.randint(1, 10, (n,), generator=rng)
    return inputs, torch.where(wrong, (target + shift) % 10, target)


def final_accuracy(weighting: Weighting, epochs: int = 30) -> float:
    """Train on noisy labels and return the accuracy on clean ones."""
    inputs, target = data(1500, rate=0.4, seed=1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    criterion = Criterion(weighting)  # was: nn.CrossEntropyLoss()
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(inputs)).view(-1, 100):
            optimiser.zero_grad()
            criterion(net(inputs[batch]), target[batch]).backward()
            optimiser.step()
    test_inputs, test_target = data(4000, rate=0.0, seed=2)
    return float((net(test_inputs).argmax(1) == test_target).float().mean())


def main() -> None:
    """Compare three weightings."""
    for weighting in (CCE(), GCE(0.7), DM(lam=0.5, beta=8)):
        print(f"{weighting!r:24} {100 * final_accuracy(weighting):5.1f} %")


if __name__ == "__main__":
    main()
