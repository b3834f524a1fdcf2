"""Where a run stands: all that a checkpoint holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from reweigh.lab.methods.protocol import Method
from reweigh.lab.run.outcome import Best
from reweigh.lab.train import checkpoint
from reweigh.lab.train.loop import Progress
from reweigh.lab.train.optimisers import restore


@dataclass
class Standing:
    """Going on from a saved copy of it is the same as never having stopped.

    Attributes:
        method: what is trained, with what it keeps between iterations.
        optimiser: over `method.trainable`.
        progress: iterations done, and the training loss since the last row.
        best: the best net so far.
    """

    method: Method
    optimiser: torch.optim.Optimizer
    progress: Progress = field(default_factory=Progress)
    best: Best = field(default_factory=Best)

    def save(self, path: Path) -> None:
        """Make it the checkpoint at `path`."""
        state = {
            "progress": self.progress.state_dict(),
            "net": self.method.trainable.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "method": self.method.state_dict(),
            "best": vars(self.best),
        }
        checkpoint.save(path, state)

    def load(self, path: Path, device: torch.device) -> str | None:
        """Stand where the checkpoint at `path` says; what to tell the user of it, None where there is none."""
        loaded = checkpoint.load(path, map_location=device)
        if loaded is None:
            return None
        self.progress.load_state_dict(loaded.state["progress"])
        self.method.trainable.load_state_dict(loaded.state["net"])
        restore(self.optimiser, loaded.state["optimiser"])
        self.method.load_state_dict(loaded.state["method"])
        self.best = Best(**loaded.state["best"])
        return loaded.note or f"going on from iteration {self.progress.step}"
