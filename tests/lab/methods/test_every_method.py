"""Properties of every method: it trains, resumes bit-exactly and returns its weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from reweigh.lab import objectives
from reweigh.lab.methods import Context
from reweigh.lab.objectives import method_from
from reweigh.lab.spec import parse
from reweigh.lab.train.checkpoint import load, save
from reweigh.lab.weightings import parameters_of

MASK = "[[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]"
METHODS = [
    "ClassBalanced(0.9)",
    "LDAM(drw_at=2)",
    "OHEM(0.5)",
    "SelfPaced(0.7)",
    "SelfPaced(threshold=1.5)",
    "SPCL(0.7)",
    "SPCL(threshold=3)",
    "ActiveBias(warm_up=2)",
    "ActiveBias('closeness', warm_up=1, mean_over='batch')",
    "PrunedGCE(k=0.2, start=1, every=2)",
    "LearningToReweight",
    "MetaWeightNet(inner_lr=0.05)",
    "MetaWeightNet(normalise=True)",
    "D2L(start=0, window=2, k=5)",
    "MentorNetPD",
    "MentorNetPD(mentor='net', mentor_steps=50)",
    "MentorNetDD(dump_epochs=2, mentor_steps=50, burn_in=30)",
    "SAdaptation(warm_up=2)",
    "SAdaptation('complex', warm_up=1, top=3)",
    "SAdaptation(warm_up=0)",
    f"Masking({MASK}, warm_up=2, pretrain=20, average=0.5)",
    f"Masking({MASK}, warm_up=0, pretrain=20, estimate='anchor', clip=0.01)",
    "MDYRH(warm_up=2)",
    "MDDYRSH(warm_up=1, soft_from=3, cooling=3)",
    "CoTeaching(0.4, warm_up=3)",
    "Decoupling(warm_up=5)",
    "SIGUA(0.4, warm_up=2)",
    "SIGUABC(symmetric(0.4), warm_up=1)",
    "ProSelfLC",
    "ProSelfLC(detach=True)",
    "Auto",
    "Auto(beta=0.7, lam=0)",
    "Auto(average=0.9)",
    "ELR(lam=1)",
    "SELC(start=2)",
    "ELR(half=True)",
    "ANL(5, 5, 1e-4)",
    "OSMCAA",
    "DRSA(frames=4)",
    "DRSA(frames=4, over='frame')",
    "CAE(frames=4)",
]
NETS = {"DRSA": "drsa2-resnet20", "CAE": "cae-mlp-16"}  # those that need a net of their own
OF_ANY_NET = [text for text in METHODS if parse(text).name not in NETS]


def net_of(text: str) -> str:
    return NETS.get(parse(text).name, "mlp-16")


def test_every_method_is_in_the_list() -> None:
    of_procedures = {kind.__name__ for kind in objectives.METHODS if "file" in parameters_of(kind)}
    assert {parse(text).name for text in METHODS} | of_procedures == {kind.__name__ for kind in objectives.METHODS}


@pytest.mark.parametrize("k", [7, 15])
@pytest.mark.parametrize("text", METHODS)
def test_resumes_bit_exactly(
    text: str, k: int, make_context: Callable[..., Context], train: Callable[..., None], tmp_path: Path
) -> None:
    def build() -> tuple[Context, Any, torch.optim.Optimizer]:
        context = make_context(net=net_of(text))
        method = method_from(parse(text), context)
        return context, method, torch.optim.SGD(method.trainable.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)

    context, straight, optimiser = build()
    train(straight, optimiser, context, 0, 2 * k)

    context, method, optimiser = build()
    train(method, optimiser, context, 0, k)
    parts = {"trainable": method.trainable, "optimiser": optimiser, "method": method}
    save(tmp_path / "checkpoint.pt", {name: part.state_dict() for name, part in parts.items()})
    loaded = load(tmp_path / "checkpoint.pt")
    assert loaded is not None

    context, resumed, optimiser = build()
    for name, part in {"trainable": resumed.trainable, "optimiser": optimiser, "method": resumed}.items():
        part.load_state_dict(loaded.state[name])
    train(resumed, optimiser, context, k, 2 * k)

    for module in ("trainable", "predictor"):
        expected, found = (getattr(one, module).state_dict() for one in (straight, resumed))
        assert expected.keys() == found.keys()
        for name, tensor in expected.items():
            assert torch.equal(tensor, found[name]), f"{module} {name} differs"


@pytest.mark.parametrize("text", ["MetaWeightNet", f"Masking({MASK}, warm_up=0, pretrain=2)"])
def test_resumes_on_a_cpu_from_a_gpu_checkpoint(
    text: str, make_context: Callable[..., Context], train: Callable[..., None]
) -> None:
    contexts = [make_context() for _ in range(3)]
    straight, begun, resumed = (method_from(parse(text), context) for context in contexts)
    for method, context, start, stop in ((straight, contexts[0], 0, 4), (begun, contexts[1], 0, 2)):
        train(method, torch.optim.SGD(method.trainable.parameters(), lr=0.05), context, start, stop)
    saved = begun.state_dict()
    for part in saved.values():
        for group in part.get("param_groups", ()) if isinstance(part, dict) else ():
            group["capturable"] = True  # as a GPU would save it
    resumed.trainable.load_state_dict(begun.trainable.state_dict())
    resumed.load_state_dict(saved)
    train(resumed, torch.optim.SGD(resumed.trainable.parameters(), lr=0.05), contexts[2], 2, 4)
    for name, tensor in straight.trainable.state_dict().items():
        assert torch.equal(tensor, resumed.trainable.state_dict()[name]), name


@pytest.mark.parametrize("text", METHODS)
def test_trains_and_returns_weights(
    text: str, make_context: Callable[..., Context], train: Callable[..., None]
) -> None:
    context = make_context(rate=0.2, net=net_of(text))
    method = method_from(parse(text), context)
    optimiser = torch.optim.Adam(method.trainable.parameters(), lr=0.01)
    assert context.trusted is not None
    train(method, optimiser, context, 0, context.total)
    method.predictor.eval()
    correct = torch.cat([method.predictor(b.inputs).argmax(1) == b.target for b in context.trusted.evaluation()])
    if "anchor" not in text:  # a channel estimated from an untrained net may be any permutation
        assert correct.float().mean() > 0.6
    batch = context.batches.batch(0)
    with torch.no_grad():
        weights = method.weights(method.predictor(batch.inputs), batch.target, batch.index, context.total)
    if weights is not None:
        assert weights.shape == batch.target.shape
        assert weights.isfinite().all()
        assert (weights >= 0).all()


@pytest.mark.parametrize("text", METHODS)
def test_extreme_logits_give_finite_losses_and_gradients(text: str, make_context: Callable[..., Context]) -> None:
    context = make_context(net=net_of(text))
    method = method_from(parse(text), context)
    with torch.no_grad():
        for net in (context.net, getattr(method, "other", context.net)):
            net.classifier.weight.mul_(300)
    step = context.total - 1  # past every warm-up
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = method.loss(context.batches.batch(step), step)
    loss.backward()
    assert loss.isfinite()
    for parameter in method.trainable.parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all()


@pytest.mark.parametrize("text", METHODS)
def test_calls_the_net_as_one_or_sets_reads_features(text: str, make_context: Callable[..., Context]) -> None:
    """Only the call of the net is compiled."""
    context = make_context(net=net_of(text))
    method, calls = method_from(parse(text), context), []
    context.net.register_forward_hook(lambda module, inputs, output: calls.append(output.requires_grad))
    step = context.total - 1  # past every warm-up
    method.loss(context.batches.batch(step), step)
    assert any(calls) != getattr(method, "reads_features", False)


@pytest.mark.parametrize("text", OF_ANY_NET)
def test_only_the_body_of_the_net_is_in_bfloat16(
    text: str, make_context: Callable[..., Context], train: Callable[..., None]
) -> None:
    """A linear model has no body; weights, channels, and gradients that a method takes itself are in float32."""
    ends = []
    for low in (False, True):
        context = make_context(net="linear")
        method = method_from(parse(text), context)
        optimiser = torch.optim.SGD(method.trainable.parameters(), lr=0.05)
        train(method, optimiser, context, 0, 3 * context.epoch + 1, low)  # past every warm-up
        ends.append(tree_leaves([method.trainable.state_dict(), method.predictor.state_dict(), method.state_dict()]))
    for exact, found in zip(*ends, strict=True):
        assert torch.equal(exact, found) if isinstance(exact, Tensor) else exact == found


@pytest.mark.parametrize("text", OF_ANY_NET)
def test_learns_from_rounded_logits_where_the_net_rounds_them(text: str, make_context: Callable[..., Context]) -> None:
    context = make_context()
    method: Any = method_from(parse(text), context)
    caught: list[Tensor] = []
    context.net.rounds_logits = True

    def keep(module: nn.Module, inputs: object, logits: Tensor) -> None:
        if logits.requires_grad:
            logits.register_hook(caught.append)

    context.net.classifier.register_forward_hook(keep)
    step = context.total - 1  # past every warm-up
    method.loss(context.batches.batch(step), step).backward()
    assert caught
    for gradient in caught:  # rounded on the way back, too
        assert torch.equal(gradient, gradient.bfloat16().float())


def test_global_random_state_is_not_used(make_context: Callable[..., Context], train: Callable[..., None]) -> None:
    before = torch.random.get_rng_state()
    for text in METHODS:
        context = make_context(net=net_of(text))
        method = method_from(parse(text), context)
        train(method, torch.optim.SGD(method.trainable.parameters(), lr=0.01), context, 0, 6)
    assert torch.equal(before, torch.random.get_rng_state())
