"""transformers: one set of parameters for any split of a batch, and a head that is fused with its loss."""

from __future__ import annotations

import copy
import shutil
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from reweigh import CCE, DM, GCE, MAE, Auto, Criterion, Weighting

pytest.importorskip("transformers")

import transformers

from integrations import models
from integrations.models import VOCABULARY, WEIGHTINGS, arguments, llama, parameters_of, token_data
from reweigh.integrations.transformers import fuse_head, loss_for, weighted

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")


def explicit(weighting: Weighting) -> dict[str, Any]:
    """Return the normalisation of a density, which raises a warning unless it is given."""
    return {"normalise": "unit"} if weighting.kind == "density" else {}


Route = Literal["loss", "model", "fused"]


def trained(
    folder: Path, weighting: Weighting, size: int, steps: int, route: Route = "loss", **settings: Any
) -> Tensor:
    """Return the parameters of a language model after two updates by `steps` micro-batches of `size` each."""
    model = llama()
    given: dict[str, Any] = {}
    if route == "loss":
        given["compute_loss_func"] = loss_for(weighting, "causal_lm", **explicit(weighting))
    elif route == "model":
        model.loss_function = loss_for(weighting, "causal_lm", **explicit(weighting))
    else:
        fuse_head(model, weighting, chunk=5, **explicit(weighting))
    settings = {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps, **settings}
    trainer = transformers.Trainer(model, arguments(folder, **settings), train_dataset=token_data(), **given)
    trainer.train()
    return parameters_of(model)


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_accumulation_gives_equal_parameters(name: str, tmp_path: Path) -> None:
    weighting = WEIGHTINGS[name]
    at_once = trained(tmp_path, weighting, 8, 1)
    routes: tuple[Route, ...] = ("loss", "model", "fused")
    for route in routes:
        for size, steps in ((8, 1), (2, 4)):
            found = trained(tmp_path, weighting, size, steps, route)
            torch.testing.assert_close(found, at_once, rtol=1e-5, atol=1e-6, msg=f"{route}, {size} x {steps}")
    assert not torch.allclose(at_once, parameters_of(llama()), atol=1e-3)


def test_cross_entropy_equals_the_trainers_own(tmp_path: Path) -> None:
    model = llama()
    transformers.Trainer(model, arguments(tmp_path), train_dataset=token_data()).train()
    torch.testing.assert_close(trained(tmp_path, CCE(), 4, 2), parameters_of(model), rtol=1e-5, atol=1e-6)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with what two processes saved."""
    folder = tmp_path_factory.mktemp("two_processes")
    torch.multiprocessing.spawn(models.two_processes, (free_port(), str(folder)), nprocs=2)  # type: ignore[no-untyped-call]
    return folder


@pytest.mark.parametrize("rank", [0, 1])
def test_two_processes_give_equal_parameters(rank: int, two_processes: Path, tmp_path: Path) -> None:
    results = torch.load(two_processes / f"{rank}.pt")
    parameters, auto, _ = models.trained_with_auto(tmp_path, 8)
    expected = torch.cat((parameters, *(x.flatten().float() for x in auto.state_dict().values())))
    torch.testing.assert_close(results.pop("auto"), expected, rtol=1e-3, atol=1e-3)
    for (name, route), found in results.items():
        expected = trained(tmp_path, WEIGHTINGS[name], 8, 1)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6, msg=f"{name}, {route}")


@pytest.mark.parametrize("case", ["with the model", "alone"])
def test_a_sharded_head_gives_equal_gradients(case: str, two_processes: Path) -> None:
    model = llama()
    model.loss_function = loss_for(GCE(0.7), "causal_lm")
    model(**batch_of(), num_items_in_batch=10).loss.backward()
    found = torch.load(two_processes / f"{case}.pt")
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("model_type", ["distilbert", "vit", "bert_tokens"])
def test_classification_in_a_trainer(model_type: str, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_labels": 3}
    rng = torch.Generator().manual_seed(0)
    results = []
    for size, steps in ((8, 1), (2, 4)):
        torch.manual_seed(0)
        model: Any
        if model_type == "distilbert":
            config = transformers.DistilBertConfig(
                vocab_size=23, dim=16, hidden_dim=16, n_layers=1, n_heads=2, num_labels=3
            )
            model = transformers.DistilBertForSequenceClassification(config)
        elif model_type == "vit":
            vit = transformers.ViTConfig(image_size=8, patch_size=4, intermediate_size=16, **sizes)
            model = transformers.ViTForImageClassification(vit)
        else:
            bert = transformers.BertConfig(vocab_size=23, intermediate_size=16, **sizes)
            model = transformers.BertForTokenClassification(bert)
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        rng.manual_seed(0)
        labels = torch.randint(3, (8, 5) if model_type == "bert_tokens" else (8,), generator=rng)
        if model_type == "bert_tokens":
            labels[:, 0] = -100
        key = "pixel_values" if model_type == "vit" else "input_ids"
        shape = (8, 3, 8, 8) if model_type == "vit" else (8, 5)
        inputs = torch.randn(shape, generator=rng) if model_type == "vit" else torch.randint(23, shape, generator=rng)
        data: Any = [{key: x, "labels": y} for x, y in zip(inputs, labels, strict=True)]
        settings = {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps}
        loss = loss_for(GCE(0.7), "classification")
        transformers.Trainer(model, arguments(tmp_path, **settings), train_dataset=data, compute_loss_func=loss).train()
        results.append(parameters_of(model))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)


def test_models_that_call_their_loss_function() -> None:
    rng = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(4, 3, generator=rng), torch.tensor([0, 1, 2, -100])
    expected = Criterion(GCE(0.7))(logits, labels)
    loss = loss_for(GCE(0.7), "classification")
    calls: list[Callable[[], Tensor]] = [
        lambda: loss(labels, logits, None),
        lambda: loss(logits, labels, None),
        lambda: loss(logits=torch.randn(4, 5, 3), labels=labels, pooled_logits=logits, config=None),
        lambda: loss((logits,), labels),
        lambda: loss({"logits": logits}, labels, num_items_in_batch=torch.tensor(3)),
        lambda: loss({"logits": logits}, labels, num_items_in_batch=3),
    ]
    for call in calls:
        torch.testing.assert_close(call(), expected)


def test_the_objective_can_be_logged() -> None:
    rng = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(4, 3, generator=rng, requires_grad=True), torch.tensor([0, 1, 2, -100])
    values = [
        loss_for(MAE(), "classification", value=value)(logits, labels) for value in ("objective", "cross_entropy")
    ]  # type: ignore[arg-type]
    p = logits.softmax(1)[torch.arange(3), labels[:3]]
    torch.testing.assert_close(values[0], (1 - p).mean())
    torch.testing.assert_close(*(torch.autograd.grad(value, logits, retain_graph=True)[0] for value in values))


@contextmanager
def refused(error: type[Exception], text: str) -> Iterator[None]:
    with pytest.raises(error, match=text):
        yield


def test_what_does_not_go_with_a_trainer() -> None:
    with refused(TypeError, "got a Criterion: the trainer has its own divisor"):
        loss_for(Criterion(CCE(), process_group=object()), "causal_lm")
    with refused(ValueError, "normalise must be None or 'unit' in a trainer, got 'batch'"):
        loss_for(DM(0.5, 8), "causal_lm", normalise="batch")  # type: ignore[arg-type]
    with refused(ValueError, "task must be"):
        loss_for(CCE(), "causal")  # type: ignore[arg-type]
    with refused(ValueError, "labels are missing"):
        loss_for(CCE(), "classification")({"logits": torch.zeros(2, 3)}, None)
    with refused(TypeError, "labels must be class indices"):
        loss_for(CCE(), "classification")({"logits": torch.zeros(2, 3)}, torch.zeros(2))


def test_a_density_is_divided_by_its_integral_and_says_so() -> None:
    with pytest.warns(UserWarning, match=r"DM\(lam=0.5, beta=8\) is divided by its integral in a trainer") as caught:
        loss = loss_for(DM(0.5, 8), "causal_lm")
    assert caught[0].filename == __file__
    assert repr(loss) == "loss_for(DM(lam=0.5, beta=8), 'causal_lm', normalise='unit')"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert repr(loss_for(DM(0.5, 8), "causal_lm", normalise="unit")) == repr(loss)
        loss_for(GCE(), "causal_lm")


def batch_of(n: int = 4) -> dict[str, Tensor]:
    return {name: torch.stack([row[name] for row in token_data(n)]) for name in ("input_ids", "labels")}


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_a_fused_head_equals_the_loss_of_the_logits(tied: bool) -> None:
    plain, fused = llama(tie_word_embeddings=tied), llama(tie_word_embeddings=tied)
    fuse_head(fused, MAE())
    plain.loss_function = loss_for(MAE(), "causal_lm")
    values = []
    for model in (plain, fused):
        output = model(**batch_of())
        output.loss.backward()
        values.append(output.loss)
    torch.testing.assert_close(*values)
    assert output.logits is None
    for (name, expected), found in zip(plain.named_parameters(), fused.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-4, atol=1e-7, msg=name)
    assert fused.state_dict().keys() == plain.state_dict().keys()


def test_a_fused_model_evaluates_generates_and_can_be_copied() -> None:
    model = fuse_head(llama(), GCE(0.7)).eval()
    tokens = batch_of()["input_ids"]
    assert model(**batch_of()).logits.shape == (*tokens.shape, VOCABULARY)
    assert model.generate(tokens[:, :3], max_new_tokens=2, do_sample=False).shape == (4, 5)
    twin = copy.deepcopy(model).train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert twin(**batch_of()).loss.item() != pytest.approx(model.train()(**batch_of()).loss.item(), abs=1e-3)


def test_a_fused_model_keeps_its_name(tmp_path: Path) -> None:
    model = fuse_head(llama(), GCE(0.7))
    model.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(again) is transformers.LlamaForCausalLM
    torch.testing.assert_close(parameters_of(again), parameters_of(model))


def test_half_precision() -> None:
    gradients = []
    for fused in (False, True):
        model = llama().to(torch.bfloat16)
        if fused:
            fuse_head(model, GCE(0.7))
        else:
            model.loss_function = loss_for(GCE(0.7), "causal_lm")
        loss = model(**batch_of()).loss
        assert loss.dtype == torch.float32
        loss.backward()
        gradients.append(model.lm_head.weight.grad.float())
    torch.testing.assert_close(*gradients, rtol=0.05, atol=2e-3)


def test_logits_are_never_stored_in_training() -> None:
    shapes: list[torch.Size] = []
    model = fuse_head(llama(), GCE(0.7), chunk=4)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: shapes.append(x.shape) or x, lambda x: x):
        model(**batch_of()).loss.backward()
    rows = [shape.numel() // VOCABULARY for shape in shapes if shape and shape[-1] == VOCABULARY]
    assert rows == []
    assert len(shapes) > 10


def test_heads_that_cannot_be_fused() -> None:
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(llama(), peft.LoraConfig(target_modules=["lm_head", "q_proj"], r=2))
    with refused(
        ValueError, r"head must be a torch.nn.Linear to be fused, got peft[.\w]*Linear; leave it out of LoRA's targets"
    ):
        fuse_head(adapted, CCE())
    later = peft.get_peft_model(fuse_head(llama(), CCE()), peft.LoraConfig(target_modules=["lm_head"], r=2))
    with refused(ValueError, "leave it out of LoRA's targets"):
        later.train()(**batch_of())
    with refused(ValueError, "fused already"):
        fuse_head(fuse_head(llama(), CCE()), CCE())
    config = transformers.Gemma2Config(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, head_dim=8, pad_token_id=0,
    )  # fmt: skip
    capped = fuse_head(transformers.Gemma2ForCausalLM(config), CCE())
    with refused(ValueError, "Gemma2ForCausalLM changes its logits after the head"):
        capped.train()(**batch_of())


def test_lora_next_to_a_fused_head_gets_its_gradient() -> None:
    peft = pytest.importorskip("peft")
    gradients = []
    for fused in (False, True):
        model = llama()
        if fused:
            fuse_head(model, GCE(0.7))
        else:
            model.loss_function = loss_for(GCE(0.7), "causal_lm")
        torch.manual_seed(0)
        adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], r=2, init_lora_weights=False))
        adapted.train()(**batch_of()).loss.backward()
        gradients.append(torch.cat([p.grad.flatten() for p in adapted.parameters() if p.requires_grad]))
    assert gradients[0].abs().sum() > 0
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-7)


def test_auto_and_recorder_in_a_trainer(tmp_path: Path) -> None:
    parameters, auto, recorder = models.trained_with_auto(tmp_path, 4)
    labels = torch.stack([row["labels"] for row in models.sentences()])
    torch.testing.assert_close(auto.labels.long(), labels)
    assert (auto.visits == 1).all()
    assert recorder.suspects(bootstrap=1).given.tolist() == labels.tolist()

    model, again = models.bert(), Auto(16, 3)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    for index in torch.arange(16).split(4):
        optimiser.zero_grad()
        tokens = torch.stack([models.sentences()[i]["input_ids"] for i in index])
        again(model(tokens).logits, labels[index], index).backward()
        optimiser.step()
    torch.testing.assert_close(parameters, parameters_of(model), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(auto.state_dict(), again.state_dict())


def test_auto_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    steps = {"max_steps": 8, "save_strategy": "steps", "save_steps": 3}
    parameters, auto, recorder = models.trained_with_auto(tmp_path, 4, **steps)
    torch.testing.assert_close(auto.visits, torch.full((16,), 2, dtype=torch.int32))
    for folder in tmp_path.glob("checkpoint-*"):
        if folder.name != "checkpoint-3":
            shutil.rmtree(folder)
    resumed, again, record = models.trained_with_auto(tmp_path, 4, resume=True, **steps)
    torch.testing.assert_close(resumed, parameters, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(again.state_dict(), auto.state_dict())
    torch.testing.assert_close(record.state_dict(), recorder.state_dict(), equal_nan=True)
    next(tmp_path.glob("checkpoint-*/reweigh-0.pt")).unlink()
    with refused(FileNotFoundError, r"no state of Auto or the recorder"):
        models.trained_with_auto(tmp_path, 4, resume=True, **steps)


def test_what_auto_needs(tmp_path: Path) -> None:
    with refused(TypeError, r"use weighted\(Trainer, auto, 'classification'\)"):
        loss_for(Auto(2, 3), "classification")  # type: ignore[arg-type]
    with refused(ValueError, "task must be 'classification' with Auto or a recorder, got 'causal_lm'"):
        weighted(transformers.Trainer, Auto(2, 3), "causal_lm")
    trainer = weighted(transformers.Trainer, Auto(16, 3), "classification")
    with refused(ValueError, "the training data need a column 'index'"):
        trainer(models.bert(), arguments(tmp_path), train_dataset=models.sentences()).train()


def test_process_group_is_no_argument() -> None:
    assert not dist.is_initialized()
    with refused(TypeError, "process_group"):
        loss_for(CCE(), "causal_lm", process_group=object())  # type: ignore[call-arg]
