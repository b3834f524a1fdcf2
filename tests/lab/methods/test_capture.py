"""Capture of methods, tested without a GPU by a tape that repeats operations on the same memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from reweigh.lab.methods import Context, Method
from reweigh.lab.methods.device_values import DeviceDraws, DeviceNumber
from reweigh.lab.objectives import METHODS, method_from
from reweigh.lab.spec import parse
from reweigh.lab.train.captured import CapturedStep
from reweigh.lab.train.step import EagerStep

MASK = "[[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]"
CAPTURED = {  # and how many graphs it takes for a run of six epochs of five iterations
    "ClassBalanced(0.9)": 1,
    "LDAM(drw_at=2)": 2,
    "OHEM(0.5)": 1,
    "SelfPaced(0.7)": 1,
    "SelfPaced(1, divide_by='kept')": 1,
    "SelfPaced(threshold=1.5)": 1,
    "SPCL(0.7)": 1,
    "SPCL(threshold=3)": 1,
    "ActiveBias(warm_up=2)": 2,
    "ActiveBias('closeness', warm_up=1, mean_over='batch')": 2,
    "PrunedGCE(k=0.2, start=1, every=2)": 1,
    "LearningToReweight": 1,
    "MetaWeightNet(inner_lr=0.05)": 1,
    "MetaWeightNet(normalise=True)": 1,
    "D2L(start=0, window=2, k=5)": 1,
    "MentorNetPD": 1,
    "MentorNetPD(mentor='net', mentor_steps=10)": 1,
    "MentorNetDD(dump_epochs=2, mentor_steps=10, burn_in=30)": 2,
    "SAdaptation(warm_up=2)": 2,
    "SAdaptation('complex', warm_up=1, top=3)": 2,
    f"Masking({MASK}, warm_up=2, pretrain=10, average=0.5)": 2,
    f"Masking({MASK}, warm_up=0, pretrain=10, clip=0.01)": 1,
    "MDYRH(warm_up=2)": 2,
    "MDYRH(warm_up=0)": 2,
    "MDDYRSH(warm_up=1, soft_from=3, cooling=3)": 3,
    "CoTeaching(0.4, warm_up=4)": 3,
    "Decoupling(warm_up=5)": 2,
    "SIGUA(0.4, warm_up=3)": 2,
    "SIGUABC(symmetric(0.4), warm_up=1)": 2,
    "ProSelfLC": 1,
    "ProSelfLC(detach=True)": 1,
    "Auto": 1,
    "Auto(average=0.9)": 1,
    "ELR(lam=1)": 1,
    "SELC(start=2)": 2,
    "ELR(half=True)": 1,
    "ANL(5, 5, 1e-4)": 1,
    "OSMCAA": 1,
    "SoftLabels('soft.npy')": 1,
    "JointLabels('labels.npy', begin=2, slots=3)": 1,
    "Curriculum('difficulty.npy')": 1,
}
LOOKS = {"_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "unique", "_unique2", "bincount"}
BRINGS = {"lift_fresh", "rand", "randn", "randperm", "randint", "normal", "normal_", "uniform_", "bernoulli_"}
ASKS = {"item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__", "tensor", "from_numpy"}


class Tape(TorchDispatchMode):
    """Executes and records operations; refuses those that a graph cannot hold."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in LOOKS | BRINGS, f"{name} within an iteration: the host looks at the device, or feeds it"
        if name.startswith("index"):
            masks = [t for t in tree_leaves(args[1]) if isinstance(t, Tensor) and t.dtype == torch.bool]
            assert not masks, f"{name} by a mask: its shape depends on what is on the device"
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result


class OffHost(TorchFunctionMode):
    """Refuses calls by which the host takes values from the device or gives it new ones."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert getattr(func, "__name__", "") not in ASKS, f"{func.__name__} within an iteration"
        return func(*args, **(kwargs or {}))


class Repeated:
    """Stands in for a CUDA graph: replays the same operations on the same memory."""

    def __init__(self, work: Callable[[], object]) -> None:
        with Tape() as tape, OffHost():
            work()
        self.calls, self.done = tape.calls, True  # capturing carried it out once, which a GPU does not

    @torch.no_grad()
    def replay(self) -> None:
        if not self.done:
            for func, args, kwargs, result in self.calls:
                again = func(*args, **kwargs)
                for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                    if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)
        self.done = False


Make = Callable[[str], tuple[Context, Any]]


@pytest.fixture
def make(make_context: Callable[..., Context], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Build a method and its context; checks of targets are off, as on a GPU."""
    monkeypatch.chdir(tmp_path)
    for module in ("losses.loss", "auto"):
        monkeypatch.setattr(f"reweigh.{module}.all_true", lambda condition: True)

    def make(text: str) -> tuple[Context, Any]:
        context = make_context()
        rng = np.random.default_rng(0)
        np.save("soft.npy", rng.dirichlet(np.ones(4), len(context.labels)))
        np.save("difficulty.npy", rng.random(len(context.labels)))
        method: Any = method_from(parse(text), context)
        if text.startswith("MetaWeightNet"):  # as on a GPU: the count of its steps is not read
            method.optimiser = torch.optim.Adam(method.V.parameters(), lr=1e-3, weight_decay=1e-4, fused=True)
        return context, method

    return make


def eager_of(context: Context, method: Method) -> EagerStep:
    return EagerStep(
        method,
        context.batches,
        torch.optim.SGD(method.trainable.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3),
        total=context.total,
        learning_rate=lambda step: 0.05,
        autocast=lambda: torch.autocast("cpu", enabled=False),
    )


def trained(context: Context, method: Method, iteration: Callable[[int], Tensor]) -> list[Any]:
    """Return rows and state after a run with an evaluation every third iteration."""

    method.trainable.train()
    rows: list[Any] = []
    for step in range(context.total):
        rows.append(iteration(step).item())
        if (step + 1) % context.epoch == 0:
            method.epoch_end((step + 1) // context.epoch - 1)
        if (step + 1) % 3 == 0:
            batch = context.batches.batch(0)
            with torch.no_grad():
                weights = method.weights(method.predictor(batch.inputs), batch.target, batch.index, step)
            rows.append(None if weights is None else weights.tolist())
    state = tree_leaves([method.trainable.state_dict(), method.predictor.state_dict(), method.state_dict()])
    return rows + [leaf.tolist() if isinstance(leaf, Tensor) else leaf for leaf in state]


def test_every_method_with_a_capture_key_is_tested() -> None:
    with_key = {cls.__name__ for cls in METHODS if hasattr(cls, "capture_key")}
    assert {parse(text).name for text in CAPTURED} == with_key
    assert not {cls.__name__ for cls in METHODS if hasattr(cls, "uncaptured")} & with_key


@pytest.mark.parametrize("text", CAPTURED)
def test_replayed_iterations_equal_eager_ones(text: str, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    context, method = make(text)
    expected = trained(context, method, eager_of(context, method))
    graphs: list[Repeated] = []

    def capture(work: Callable[[], None]) -> Repeated:
        graphs.append(Repeated(work))
        return graphs[-1]

    monkeypatch.setattr("reweigh.lab.train.captured.Graph", capture)
    context, method = make(text)
    captured = CapturedStep(eager_of(context, method))
    assert trained(context, method, captured) == expected
    assert captured.note is None
    assert len(graphs) == CAPTURED[text]


@pytest.mark.parametrize(
    "work",
    [
        lambda x: x.sum().item(),
        lambda x: bool((x > 0).all()),
        lambda x: x[x > 0],
        lambda x: x.tolist(),
        lambda x: x.sort().values[(x > 0).nonzero()],
        lambda x: x + torch.tensor(1.0),
        lambda x: x + torch.randn(3),
        lambda x: torch.as_tensor([1.0, 2.0, 3.0]) * x,
        lambda x: x if x.equal(x) else -x,
    ],
)
def test_the_tape_refuses_what_a_graph_cannot_hold(work: Callable[[Tensor], object]) -> None:
    x = torch.arange(-1.0, 2.0)
    with pytest.raises(AssertionError, match=r"within an iteration|by a mask"):
        Repeated(lambda: work(x))


def test_replays_read_values_updated_by_the_host() -> None:
    number, drawn = (
        DeviceNumber(torch.device("cpu")),
        DeviceDraws(lambda step, size: (torch.full((size,), step),), torch.device("cpu")),
    )
    found = torch.zeros(3, dtype=torch.float64)
    number.set(2.0)
    drawn.at(0, 3)
    graph = Repeated(lambda: found.copy_(number.set(2.0) + drawn.at(0, 3)[0]))
    graph.replay()
    assert found.tolist() == [2.0] * 3
    number.set(5.0)
    drawn.at(7, 3)
    graph.replay()
    assert found.tolist() == [12.0] * 3
