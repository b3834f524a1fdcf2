"""Lightning: training, what checkpoints contain, and where the index of an example comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

pytest.importorskip("lightning")

from lightning.pytorch import LightningModule, Trainer

from reweigh import CCE, DM, GCE, Auto, Criterion, Indexed, Recorder, Weighting
from reweigh.integrations.lightning import SuspectRecorder, WeightedModule

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning advises on workers and logging


def blobs(n: int = 240, wrong: float = 0.3) -> tuple[Tensor, Tensor, Tensor]:
    """Return three Gaussians, with noisy and clean labels."""
    rng = torch.Generator().manual_seed(0)
    clean = torch.arange(n) % 3
    x = 3 * torch.eye(3)[clean] + torch.randn(n, 3, generator=rng)
    return x, torch.where(torch.rand(n, generator=rng) < wrong, (clean + 1) % 3, clean), clean


def loader(dataset: Any) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=40, shuffle=True, generator=torch.Generator().manual_seed(1))


def trainer(folder: Path, **settings: Any) -> Any:
    quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return Trainer(default_root_dir=folder, **{"max_epochs": 10, "enable_checkpointing": False, **quiet, **settings})


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 3))


@pytest.mark.parametrize("weighting", [CCE(), GCE(0.7), DM(0.5, 8), Auto(240, 3)], ids=lambda w: type(w).__name__)
def test_training_and_validation(weighting: Any, tmp_path: Path) -> None:
    x, noisy, clean = blobs()
    module, run = WeightedModule(net(), weighting), trainer(tmp_path)
    run.fit(module, loader(Indexed(TensorDataset(x, noisy))), DataLoader(TensorDataset(x, clean), batch_size=240))
    assert run.callback_metrics["val_accuracy"] > 0.6
    assert set(run.callback_metrics) >= {"val_loss", "val_accuracy"}


def test_it_trains_as_a_plain_loop_does(tmp_path: Path) -> None:
    x, noisy, _ = blobs()
    module = WeightedModule(net(), GCE(0.7), lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    trainer(tmp_path, max_epochs=1).fit(module, DataLoader(TensorDataset(x, noisy), batch_size=40))
    plain, criterion = net(), Criterion(GCE(0.7))
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.1)
    for inputs, labels in DataLoader(TensorDataset(x, noisy), batch_size=40):
        optimiser.zero_grad()
        criterion(plain(inputs), labels).backward()
        optimiser.step()
    for ours, expected in zip(module.net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, expected)


class Own(LightningModule):  # type: ignore[misc]
    """A user's module with a weighting among its hyperparameters."""

    def __init__(self, weighting: Weighting, lr: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer, self.criterion = nn.Linear(3, 3), Criterion(weighting)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.criterion(self.layer(batch[0]), batch[1])  # type: ignore[no-any-return]

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


@pytest.mark.parametrize("weighting", [GCE(0.5), DM(0.5, 8), CCE() + 3 * GCE(0.2)], ids=repr)
def test_hyperparameters_load_under_weights_only(weighting: Weighting, tmp_path: Path) -> None:
    x, noisy, _ = blobs(40)
    for module, given in ((Own(weighting), {}), (WeightedModule(net(), weighting), {"net": net(1)})):
        run = trainer(tmp_path, max_epochs=1)
        run.fit(module, DataLoader(TensorDataset(x, noisy), batch_size=40))
        path = tmp_path / "module.ckpt"
        run.save_checkpoint(path)
        again = type(module).load_from_checkpoint(path, weights_only=True, **given)
        assert again.hparams.weighting == weighting
        for ours, expected in zip(again.parameters(), module.parameters(), strict=True):
            torch.testing.assert_close(ours, expected)


def test_auto_and_recorder_resume_from_a_checkpoint(tmp_path: Path) -> None:
    x, noisy, clean = blobs()
    data = Indexed(TensorDataset(x, noisy))
    recorder, auto = Recorder(240), Auto(240, 3)
    run = trainer(tmp_path, callbacks=[SuspectRecorder(recorder)])
    run.fit(WeightedModule(net(), auto), loader(data))
    torch.testing.assert_close(auto.labels, noisy.int())
    assert (auto.visits == 10).all()
    for found in (auto.suspects(), recorder.suspects(bootstrap=1)):
        worst = found.index[np.argsort(-found.score)][:50]
        assert (noisy != clean).numpy()[worst].mean() > 0.8
    path = tmp_path / "module.ckpt"
    run.save_checkpoint(path)

    resumed, again = Recorder(240), Auto(240, 3)
    run = trainer(tmp_path, max_epochs=12, callbacks=[SuspectRecorder(resumed)])
    run.fit(WeightedModule(net(1), again), loader(data), ckpt_path=path, weights_only=True)
    assert (again.visits == 12).all()
    assert (resumed.state_dict()["visits"] == 12).all()


def test_messages_say_where_the_index_comes_from(tmp_path: Path) -> None:
    data = DataLoader(TensorDataset(*blobs(40)[:2]), batch_size=40)
    with pytest.raises(ValueError, match=r"wrap the training set in reweigh\.Indexed"):
        trainer(tmp_path).fit(WeightedModule(net(), Auto(40, 3)), data)
    with pytest.raises(ValueError, match=r"wrap the training set in reweigh\.Indexed"):
        trainer(tmp_path, callbacks=[SuspectRecorder(Recorder(40))]).fit(WeightedModule(net(), CCE()), data)
    indexed = DataLoader(Indexed(TensorDataset(*blobs(40)[:2])), batch_size=40)
    with pytest.raises(ValueError, match="'loss' and 'logits'"):
        trainer(tmp_path, callbacks=[SuspectRecorder(Recorder(40))]).fit(Own(CCE()), indexed)
