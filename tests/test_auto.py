"""Auto: the rule against NumPy in float64, its properties, its state, and two processes against one."""

from __future__ import annotations

import copy
import io
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from reweigh import Auto, Indexed
from two_ranks import auto_worker

Floats = NDArray[np.float64]
N, C = 30, 4


class Reference:
    """The rule, example by example."""

    def __init__(self, n: int, c: int, beta: float, eps: float, tau: float, kappa: float, lam: float) -> None:
        self.n, self.c, self.beta, self.tau, self.kappa, self.lam = n, c, beta, tau, kappa, lam
        self.t = np.full((n, c), 1 / c)
        self.joint = (1 - eps) * np.eye(c) / c + eps / c**2
        self.a, self.b = np.full(c, 1 / c), np.full(c, 1 / c)

    def step(self, z: Floats, labels: NDArray[np.int64], index: NDArray[np.int64]) -> tuple[float, Floats]:
        """Return the loss and r, and update the state; no index may occur twice."""
        value, rs, ts, ss, counts = 0.0, [], [], [], np.zeros_like(self.joint)
        transition = self.joint / self.joint.sum(1, keepdims=True)
        for logits, label, i in zip(z, labels, index, strict=True):
            p = np.exp(logits - logits.max())
            p /= p.sum()
            self.t[i] = self.beta * self.t[i] + (1 - self.beta) * p
            s = self.t[i] ** self.tau * (self.kappa / self.c + (1 - self.kappa) * self.a) / self.b
            s /= s.sum()
            r = s * transition[:, label] if label >= 0 else s
            r = r / r.sum()
            if label >= 0:
                counts[:, label] += r
            value += -(r * np.log(p)).sum() + self.lam * np.log(1 - self.t[i] @ p)
            rs.append(r)
            ts.append(self.t[i].copy())
            ss.append(s)
        share = min(1.0, len(z) / self.n)
        if (labels >= 0).any():
            self.joint = (1 - share) * self.joint + share * counts / (labels >= 0).sum()
        self.a = (1 - share) * self.a + share * np.mean(ts, 0)
        self.b = (1 - share) * self.b + share * np.mean(ss, 0)
        return value / len(z), np.array(rs)


def batches(steps: int, size: int = 10, missing: float = 0.0) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return logits, labels and distinct indices; each example keeps its label."""
    rng = torch.Generator().manual_seed(0)
    labels = torch.randint(C, (N,), generator=rng)
    labels[torch.rand(N, generator=rng) < missing] = -100
    found = []
    for _ in range(steps):
        index = torch.randperm(N, generator=rng)[:size]
        found.append((3 * torch.randn(size, C, generator=rng, dtype=torch.float64), labels[index], index))
    return found


def auto64(**settings: float) -> Auto:
    return Auto(N, C, dtype=torch.float64, **settings).double()  # type: ignore[arg-type]


SETTINGS = [
    {},
    {"beta": 0.0, "tau": 1.0, "lam": 0.0},
    {"beta": 0.7, "eps": 0.05, "tau": 3.0, "kappa": 0.0},
    {"eps": 1.0, "kappa": 1.0, "lam": 3.0},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("missing", [0.0, 0.3, 1.0])
def test_every_step_is_that_of_the_reference(settings: dict[str, float], missing: float) -> None:
    defaults = {"beta": 0.9, "eps": 0.5, "tau": 2.0, "kappa": 0.5, "lam": 1.0}
    auto, reference = auto64(**settings), Reference(N, C, **{**defaults, **settings})
    for z, labels, index in batches(12, missing=missing):
        z.requires_grad_()
        value = auto(z, labels, index)
        expected, r = reference.step(z.detach().numpy(), labels.numpy(), index.numpy())
        assert value.item() == pytest.approx(expected, abs=2e-3 * auto.lam + 1e-6)  # the anchor is bounded
        (gradient,) = torch.autograd.grad(value, z)
        p, t = z.detach().softmax(1), torch.from_numpy(reference.t[index.numpy()])
        agreement = (t * p).sum(1, keepdim=True)
        anchor = auto.lam * p * (t - agreement) / (1 - agreement)
        torch.testing.assert_close(gradient, (p - torch.from_numpy(r) - anchor) / len(z), rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(auto.opinions.numpy(), reference.t, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(auto.joint.numpy(), reference.joint, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(auto.opinion_total.numpy(), reference.a, rtol=1e-9, atol=1e-12)


def test_with_certain_labels_and_no_anchor_the_gradient_is_that_of_cross_entropy() -> None:
    auto = auto64(lam=0.0)
    auto.joint.copy_(torch.eye(C) / C)
    for z, labels, index in batches(5):
        z.requires_grad_()
        (ours,) = torch.autograd.grad(auto(z, labels, index), z)
        (theirs,) = torch.autograd.grad(functional.cross_entropy(z, labels), z)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_posteriors_are_distributions() -> None:
    auto = Auto(N, C)
    for z, labels, index in batches(20, missing=0.2):
        auto(z.float() * 20, labels, index)
    posterior = auto.posterior()
    assert posterior.shape == (N, C)
    torch.testing.assert_close(posterior.sum(1), torch.ones(N))
    torch.testing.assert_close(auto.confusion.sum(1), torch.ones(C))
    torch.testing.assert_close(auto.posterior(torch.tensor([4, 2])), posterior[[4, 2]])
    assert 0 <= auto.noise_rate <= 1


def test_a_permutation_of_the_classes_permutes_everything() -> None:
    order = torch.tensor([2, 0, 3, 1])  # new class k is old class order[k]
    auto, permuted = auto64(), auto64()
    for z, labels, index in batches(10):
        values = auto(z, labels, index), permuted(z[:, order], order.argsort()[labels], index)
        torch.testing.assert_close(*values)
    torch.testing.assert_close(permuted.posterior(), auto.posterior()[:, order])
    torch.testing.assert_close(permuted.joint, auto.joint[order][:, order])


def test_an_example_twice_in_a_batch_has_the_mean_of_its_predictions_and_two_visits() -> None:
    z = torch.randn(3, C, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    auto = auto64()
    auto(z, torch.tensor([1, 1, 2]), torch.tensor([7, 7, 8]))
    expected = 0.9 / C + 0.1 * z[:2].softmax(1).mean(0)
    torch.testing.assert_close(auto.opinions[7], expected)
    assert auto.visits[[7, 8, 9]].tolist() == [2, 1, 0]


def test_examples_that_are_not_in_a_batch_keep_their_state() -> None:
    auto = auto64()
    before = copy.deepcopy(auto.state_dict())
    z, labels, index = batches(1)[0]
    auto(z, labels, index)
    others = [i for i in range(N) if i not in index.tolist()]
    for name in ("opinions", "posteriors", "visits", "labels"):
        assert torch.equal(auto.state_dict()[name][others], before[name][others]), name


def test_a_restored_state_continues_with_the_same_bits() -> None:
    auto, resumed = Auto(N, C), Auto(N, C)
    steps = batches(10)
    for step in steps[:5]:
        auto(*step)
    file = io.BytesIO()
    torch.save(auto.state_dict(), file)
    resumed.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    for step in steps[5:]:
        assert torch.equal(auto(*step), resumed(*step))
    for name, tensor in auto.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_evaluation_leaves_the_state() -> None:
    auto = Auto(N, C)
    steps = batches(3)
    auto(*steps[0])
    before = copy.deepcopy(auto.state_dict())
    auto.eval()
    assert auto(*steps[1]).isfinite()
    assert all(torch.equal(tensor, before[name]) for name, tensor in auto.state_dict().items())


def test_a_sample_weight_of_zero_removes_an_example_from_the_loss() -> None:
    z, labels, index = batches(1)[0]
    weights = torch.ones(len(z), dtype=torch.float64)
    weights[0] = 0
    value = auto64()(z, labels, index, sample_weight=weights)
    z.requires_grad_()
    (gradient,) = torch.autograd.grad(auto64()(z, labels, index, sample_weight=weights), z)
    assert value.isfinite()
    assert torch.equal(gradient[0], torch.zeros(C, dtype=torch.float64))
    assert gradient[1:].abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_extreme_logits_give_finite_losses_and_gradients(dtype: torch.dtype) -> None:
    auto = Auto(2, C)
    logits = (torch.eye(C)[:2] * 1e4).to(dtype).requires_grad_()
    for _ in range(100):
        value = auto(logits, torch.tensor([0, 3]), torch.tensor([0, 1]))
        (gradient,) = torch.autograd.grad(value, logits)
        assert value.isfinite()
        assert gradient.isfinite().all()
        assert gradient.dtype == dtype


def test_without_memory_the_opinion_is_passed() -> None:
    remembering, without = auto64(beta=0.0), auto64(beta=0.0, remember=False)  # with beta = 0 the opinion is p
    for z, labels, index in batches(10, missing=0.2):
        z.requires_grad_()
        value = without(z, labels, opinion=z.detach().softmax(1))
        torch.testing.assert_close(value, remembering(z, labels, index))
    torch.testing.assert_close(without.joint, remembering.joint)
    assert without.opinions.numel() == without.posteriors.numel() == 0


def test_a_masked_class_has_no_gradient() -> None:
    logits = torch.tensor([[1.0, -torch.inf, 0.5, 0.0]], requires_grad=True)
    auto = Auto(N, C)
    for _ in range(5):
        value = auto(logits, torch.tensor([0]), torch.tensor([3]))
        (gradient,) = torch.autograd.grad(value, logits)
        assert value.isfinite()
        assert gradient.isfinite().all()
        assert gradient[0, 1] == 0


def test_it_finds_wrong_labels_and_their_confusion() -> None:
    rng = torch.Generator().manual_seed(0)
    n = 900
    truth = torch.arange(n) % 3
    wrong = (torch.rand(n, generator=rng) < 0.3) & (truth != 2)
    labels = torch.where(wrong, 1 - truth, truth)  # classes 0 and 1 are confused, 2 is clean
    x = functional.one_hot(truth, 3) * 3 + torch.randn(n, 3, generator=rng)
    net = nn.Linear(3, 3)
    nn.init.zeros_(net.weight)
    auto = Auto(n, 3)
    optimiser = torch.optim.SGD(net.parameters(), 0.3)
    loader = DataLoader(Indexed(TensorDataset(x, labels)), 64, shuffle=True, generator=rng)
    for _ in range(20):
        for inputs, given, index in loader:
            optimiser.zero_grad()
            auto(net(inputs), given, index).backward()
            optimiser.step()
    assert auto.noise_rate == pytest.approx(float(wrong.float().mean()), abs=0.05)
    assert auto.confusion[0, 1] == pytest.approx(0.3, abs=0.1)
    assert auto.confusion[2, 2] > 0.95
    suspects = auto.suspects()
    assert len(suspects) == n
    worst = suspects.ranked()[: int(wrong.sum())]
    assert wrong.numpy()[suspects.index[worst]].mean() > 0.85
    assert (suspects.suggested == truth.numpy()).mean() > 0.9


def test_suspects_are_only_what_was_seen_with_a_label() -> None:
    auto = Auto(10, C)
    with pytest.raises(ValueError, match="no labelled example has been seen"):
        auto.suspects()
    auto(torch.randn(3, C), torch.tensor([0, -100, 2]), torch.tensor([9, 1, 4]))
    assert auto.suspects().index.tolist() == [4, 9]


def test_compiled_in_one_graph() -> None:
    torch.compiler.reset()
    auto, compiled = Auto(N, C), Auto(N, C)
    step = torch.compile(compiled, fullgraph=True, backend="aot_eager")
    for z, labels, index in batches(3):
        torch.testing.assert_close(step(z, labels, index), auto(z, labels, index))
    torch.testing.assert_close(compiled.opinions, auto.opinions)


Z, Y, I = torch.zeros(2, C), torch.tensor([0, 1]), torch.tensor([0, 1])  # noqa: E741


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: a(torch.zeros(2, 3), Y, I), r"logits must be floats shaped \(B, 4\), got \(2, 3\)"),
        (lambda a: a(Z, Y + 3, I), "labels must be from 0 to 3 or -100"),
        (lambda a: a(Z, Y, I + 29), "index must be from 0 to 29, got 30"),
        (lambda a: a(Z, Y, I - 100), "index must be from 0 to 29, got -100"),
        (lambda a: a(Z, Y.float(), I), r"labels must be integers shaped \(2,\)"),
        (lambda a: a(Z, Y, torch.zeros(3, dtype=torch.long)), r"index must be integers shaped \(2,\)"),
        (lambda a: a(Z, Y, I, sample_weight=torch.ones(3)), r"sample_weight must be shaped \(2,\)"),
        (lambda a: a(Z, Y), "with remember=True, pass index and not opinion"),
        (lambda a: Auto(N, C, remember=False)(Z, Y, I), "with remember=False, pass opinion and not index"),
        (
            lambda a: Auto(N, C, remember=False)(Z, Y, opinion=Z[:1]),
            r"opinion must be floats shaped \(2, 4\), got \(1, 4\)",
        ),
        (lambda a: Auto(N, 1), "num_classes is 1"),
        (lambda a: Auto(N, C, beta=1), r"beta is 1; expected a number in \[0, 1\)"),
    ],
)
def test_refusals(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(Auto(N, C))  # type: ignore[operator]


def test_indexed_adds_the_index_to_tuples_dicts_and_single_items() -> None:
    assert Indexed([(1.0, 0), (2.0, 1)])[1] == (2.0, 1, 1)
    assert Indexed([{"x": 1.0}])[0] == {"x": 1.0, "index": 0}
    assert Indexed([5.0, 6.0])[1] == (6.0, 1)
    assert len(Indexed("abc")) == 3


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no distributed package")
def test_two_processes_have_the_state_and_gradients_of_one(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(auto_worker, args=(port, str(tmp_path), batches(4)), nprocs=2)  # type: ignore[no-untyped-call]
    first, second = (torch.load(tmp_path / f"{r}.pt", weights_only=True) for r in range(2))
    auto = auto64()
    for step, (z, labels, index) in enumerate(batches(4)):
        z.requires_grad_()
        (expected,) = torch.autograd.grad(auto(z, labels, index), z)
        torch.testing.assert_close(torch.cat((first["gradients"][step], second["gradients"][step])), expected)
    for name, tensor in auto.state_dict().items():
        torch.testing.assert_close(first[name], tensor)
        assert torch.equal(first[name], second[name]), name
