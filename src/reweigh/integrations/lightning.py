"""Lightning: a module that trains with a weighting or `Auto`, and a callback that records suspects.

Importing this module registers the weightings as safe globals, so that checkpoints which contain them in their
hyperparameters load under `weights_only`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from reweigh.auto import Auto
from reweigh.criterion import Criterion
from reweigh.labels import Recorder
from reweigh.weightings import Weighting

AnyWeighting = Weighting | Callable[..., Tensor]


class WeightedModule(LightningModule):  # type: ignore[misc]
    """A classifier that trains with a weighting or `Auto`.

    A batch is (inputs, labels), or (inputs, labels, index) as `reweigh.Indexed` gives it, which `Auto` and
    `SuspectRecorder` need. Validation logs `val_loss`, the cross entropy, and `val_accuracy`.

    Args:
        net: returns logits (B, C).
        weighting: w(p), or an `Auto`; the latter's state is part of checkpoints.
        optimiser: makes the optimiser of the parameters; SGD with a learning rate of 0.05 and momentum 0.9 by default.

    `WeightedModule.load_from_checkpoint(path, net=net)` restores a module; with `Auto` pass `weighting=`, too.
    """

    def __init__(
        self,
        net: nn.Module,
        weighting: AnyWeighting | Auto,
        optimiser: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
    ) -> None:
        super().__init__()
        is_auto = isinstance(weighting, Auto)
        self.save_hyperparameters(ignore=["net", "optimiser", *(["weighting"] if is_auto else [])])
        self.net = net
        self.criterion = weighting if isinstance(weighting, Auto) else Criterion(weighting)
        self.optimiser = optimiser

    def forward(self, inputs: Any) -> Tensor:
        return self.net(inputs)  # type: ignore[no-any-return]

    def setup(self, stage: str) -> None:
        if isinstance(self.criterion, Auto) and dist.is_initialized() and self.criterion.process_group is None:
            self.criterion.process_group = dist.group.WORLD

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        inputs, labels, *index = batch
        logits = self(inputs)
        if isinstance(self.criterion, Auto):
            if not index:
                raise ValueError("Auto needs the index of every example: wrap the training set in reweigh.Indexed")
            loss = self.criterion(logits, labels, index[0])
        else:
            loss = self.criterion(logits, labels)
        return {"loss": loss, "logits": logits.detach()}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        inputs, labels, *_ = batch
        logits = self(inputs)
        self.log("val_loss", cross_entropy(logits, labels))
        self.log("val_accuracy", (logits.argmax(1) == labels).float().mean())

    def configure_optimizers(self) -> Optimizer:
        if self.optimiser is None:
            return torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        return self.optimiser(self.net.parameters())


class SuspectRecorder(Callback):  # type: ignore[misc]
    """Record every training example with a `reweigh.Recorder`; checkpoints contain the record.

    The batches are (inputs, labels, index), and `training_step` returns a dict with "loss" and "logits", as
    `WeightedModule` does.

    Args:
        recorder: `Recorder(len(training_set))`; afterwards `recorder.suspects()` are the findings.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if dist.is_initialized() and self.recorder.process_group is None:
            self.recorder.process_group = dist.group.WORLD

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not isinstance(batch, tuple | list) or len(batch) != 3:
            raise ValueError("a batch must be (inputs, labels, index): wrap the training set in reweigh.Indexed")
        if not isinstance(outputs, dict) or "logits" not in outputs:
            raise ValueError("training_step must return a dict with 'loss' and 'logits'")
        self.recorder.update(batch[2], outputs["logits"], batch[1])

    def state_dict(self) -> dict[str, Any]:
        return self.recorder.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.recorder.load_state_dict(state_dict)
