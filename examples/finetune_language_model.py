"""Fine-tune a small language model on answers of which 30 % are wrong.

    pip install "reweigh[transformers]"
    python examples/finetune_language_model.py

A Llama with random weights sorts five letters. First it learns the task from clean text and is fine-tuned on 640
answers, of which 192 are random letters. Then an untrained one learns from 25,600 answers, of which 7,680 are random.
Held-out questions have correct answers. One seed, a minute of computing on a CPU:

    a model that knows the task: held-out loss 0.010, exact match 99.8 %
      MAE(): mean p of the labels is 0.72; near .8 -p (DFT) beat NLL (Li et al., arXiv:2510.00526)
      NLL, CCE()           held-out loss  0.223, exact match  78.8 %
      DFT, MAE()           held-out loss  0.041, exact match  94.4 %
      GCE(q=0.7)           held-out loss  0.050, exact match  92.4 %
      DM(lam=0.5, beta=8)  held-out loss  0.051, exact match  95.2 %
    a model that does not: held-out loss 2.916, exact match 0.0 %
      CCE(): mean p of the labels is 0.06; near 0 NLL won and -p collapsed (Li et al., arXiv:2510.00526)
      NLL, CCE()           held-out loss  0.158, exact match  99.0 %
      DFT, MAE()           held-out loss  0.270, exact match  82.6 %
      GCE(q=0.7)           held-out loss  0.124, exact match  90.6 %
      DM(lam=0.5, beta=8)  held-out loss  0.079, exact match  94.8 %

Fine-tuning on these answers makes the first model worse with every objective, most with NLL, which memorises them.
"""

from __future__ import annotations

import tempfile
import warnings
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments

from reweigh import CCE, DM, GCE, MAE, Weighting
from reweigh.integrations.transformers import loss_for
from reweigh.language import advise

LETTERS, LENGTH, WRONG = 16, 5, 0.3
ARROW, START = LETTERS, LETTERS + 1  # tokens after the letters


def questions(n: int, seed: int, wrong: float = 0.0) -> list[dict[str, Tensor]]:
    """Return n rows: START letters ARROW the letters in order; a share `wrong` has random letters as its answer."""
    rng = torch.Generator().manual_seed(seed)
    letters = torch.randint(LETTERS, (n, LENGTH), generator=rng)
    answers = letters.sort(1).values
    spoilt = torch.arange(n) < round(wrong * n)
    answers = torch.where(spoilt[:, None], torch.randint(LETTERS, (n, LENGTH), generator=rng), answers)
    column = torch.ones(n, 1, dtype=torch.long)
    tokens = torch.cat((START * column, letters, ARROW * column, answers), 1)
    labels = tokens.clone()
    labels[:, : LENGTH + 2] = -100
    return [{"input_ids": x, "labels": y} for x, y in zip(tokens, labels, strict=True)]


def batch(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([row[name] for row in rows]) for name in ("input_ids", "labels")}


def train(model: Any, rows: list[dict[str, Tensor]], weighting: Weighting, epochs: int, lr: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=64,
            learning_rate=lr,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        loss = loss_for(weighting, "causal_lm", normalise="unit" if weighting.kind == "density" else None)
        trainer = Trainer(model, arguments, train_dataset=rows, compute_loss_func=loss)
        trainer.remove_callback(PrinterCallback)
        trainer.train()


@torch.no_grad()
def held_out(model: Any, rows: list[dict[str, Tensor]]) -> tuple[float, float]:
    """Return the cross entropy of the answers' tokens, and the share of answers that are right throughout."""
    model.eval()
    given = batch(rows)
    loss = float(model(**given).loss)
    prompt = given["input_ids"][:, : LENGTH + 2]
    answers = model.generate(prompt, max_new_tokens=LENGTH, do_sample=False, attention_mask=torch.ones_like(prompt))
    return loss, float((answers == given["input_ids"]).all(1).double().mean())


def main() -> None:
    """Fine-tune a model that knows the task and one that does not, with each objective, and print what each gives."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=LETTERS + 2, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=32, pad_token_id=None, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model, test = LlamaForCausalLM(config), questions(500, seed=3)
    new = deepcopy(model)
    train(model, questions(64 * 350, seed=1), CCE(), epochs=1, lr=3e-3)
    for title, start, rows, epochs in (
        ("a model that knows the task", model, questions(640, seed=2, wrong=WRONG), 25),
        ("a model that does not", new, questions(64 * 400, seed=2, wrong=WRONG), 1),
    ):
        loss, exact = held_out(start, test)
        print(f"{title}: held-out loss {loss:.3f}, exact match {100 * exact:.1f} %")
        print(f"  {advise(start, **batch(rows[:1000]))}")
        for weighting in (CCE(), MAE(), GCE(0.7), DM(0.5, 8)):
            tuned = deepcopy(start)
            train(tuned, rows, weighting, epochs, lr=1e-3)
            loss, exact = held_out(tuned, test)
            name = {CCE(): "NLL, ", MAE(): "DFT, "}.get(weighting, "") + repr(weighting)
            print(f"  {name:20} held-out loss {loss:6.3f}, exact match {100 * exact:5.1f} %", flush=True)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=FutureWarning)
    main()
