"""TRL: the trainer's own log-probabilities, with packing, masks and adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from reweigh import CCE, MAE

pytest.importorskip("trl")

import trl

from integrations.models import VOCABULARY, WEIGHTINGS, llama, parameters_of
from reweigh.integrations.transformers import loss_for
from reweigh.integrations.trl import weighted

pytestmark = pytest.mark.filterwarnings("ignore")  # TRL announces its deprecations


def tokenizer() -> Any:
    """Return a tokenizer of the words t0, t1, ..."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCABULARY)}, unk_token="t1"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="t0", eos_token="t2", unk_token="t1")


def rows(n: int = 8) -> Any:
    """Return prompts and completions of different lengths."""
    from datasets import Dataset

    rng = torch.Generator().manual_seed(1)

    def text(length: int) -> str:
        return " ".join(f"t{i}" for i in torch.randint(3, VOCABULARY, (length,), generator=rng).tolist())

    return Dataset.from_list([{"prompt": text(1 + i % 3), "completion": " " + text(3 + i % 4)} for i in range(n)])


def trained(folder: Path, trainer: type[Any], **settings: Any) -> tuple[Tensor, list[float]]:
    """Return the parameters after two updates, and the logged losses."""
    peft_config, loss = settings.pop("peft_config", None), settings.pop("compute_loss_func", None)
    fixed = {
        "per_device_train_batch_size": 4,
        "max_steps": 2,
        "learning_rate": 0.5,
        "optim": "sgd",
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "train_sampling_strategy": "sequential",
    }
    arguments = trl.SFTConfig(output_dir=str(folder), **{**fixed, **settings})
    given: dict[str, Any] = {"compute_loss_func": loss} if loss else {}
    torch.manual_seed(0)
    made = trainer(
        llama(), arguments, train_dataset=rows(), processing_class=tokenizer(), peft_config=peft_config, **given
    )
    made.train()
    losses = [entry["loss"] for entry in made.state.log_history if "loss" in entry]
    return parameters_of(made.model), losses


def test_mae_is_the_dft_of_trl(tmp_path: Path) -> None:
    theirs, logged = trained(tmp_path, trl.SFTTrainer, loss_type="dft")
    ours, cross_entropy = trained(tmp_path, weighted(trl.SFTTrainer, MAE()))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert cross_entropy[0] > logged[0]  # -log p, where TRL logs -p log p


def test_cce_is_the_nll_of_trl(tmp_path: Path) -> None:
    theirs = trained(tmp_path, trl.SFTTrainer)
    ours = trained(tmp_path, weighted(trl.SFTTrainer, CCE()))
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-5, atol=1e-6)
    assert ours[1] == pytest.approx(theirs[1])


@pytest.mark.parametrize("name", ["GCE", "DM"])
def test_log_probabilities_give_what_logits_give(name: str, tmp_path: Path) -> None:
    weighting = WEIGHTINGS[name]
    unit: dict[str, Any] = {"normalise": "unit"} if name == "DM" else {}
    loss = loss_for(weighting, "causal_lm", **unit)
    expected, _ = trained(tmp_path, trl.SFTTrainer, compute_loss_func=loss)
    trainer = weighted(trl.SFTTrainer, weighting, **unit)
    found, _ = trained(tmp_path, trainer)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    split = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}
    torch.testing.assert_close(trained(tmp_path, trainer, **split)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ["packing", "whole texts", "peft"])
def test_settings_of_trl(case: str, tmp_path: Path) -> None:
    import peft

    settings: dict[str, Any] = {
        "packing": {"packing": True, "max_length": 16, "per_device_train_batch_size": 1},
        "whole texts": {"completion_only_loss": False},
        "peft": {"peft_config": peft.LoraConfig(target_modules=["q_proj", "v_proj"], r=2, init_lora_weights=False)},
    }[case]
    theirs, _ = trained(tmp_path, trl.SFTTrainer, **settings, loss_type="dft")
    ours, _ = trained(tmp_path, weighted(trl.SFTTrainer, MAE()), **settings)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    plain, _ = trained(tmp_path, trl.SFTTrainer, **settings)
    assert not torch.allclose(ours, plain, atol=1e-4)


def test_what_does_not_go_with_a_weighting(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="loss_type must be 'nll', got 'dft'"):
        trained(tmp_path, weighted(trl.SFTTrainer, MAE()), loss_type="dft")
    with pytest.raises(ValueError, match="label_smoothing_factor don't go with a weighting"):
        trained(tmp_path, weighted(trl.SFTTrainer, MAE()), label_smoothing_factor=0.1)
