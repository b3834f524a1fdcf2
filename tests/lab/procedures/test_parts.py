"""Parts of procedures, compared with numbers and rules of the publications."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from reweigh.lab.batches import Batch, Resident, Shuffled
from reweigh.lab.methods import Context
from reweigh.lab.methods.curriculum import Curriculum, Paced, fraction_at
from reweigh.lab.methods.soft_labels import JointLabels, entropy_loss, prior_loss
from reweigh.lab.nets import build
from reweigh.lab.objectives import loss_from, method_from
from reweigh.lab.procedures import anchor_matrix
from reweigh.lab.procedures.forgetting import best
from reweigh.lab.run import execute
from reweigh.lab.run.material import gather
from reweigh.lab.spec import Run, parse
from reweigh.noise.class_noise import map_matrix, symmetric_matrix
from reweigh.streams import generator

EPOCHS, PER_EPOCH = 12, 3
Z = torch.tensor([[2.0, 0.0, -1.0], [0.5, 1.5, 0.0]])


class Fixed(torch.nn.Module):
    """Returns its parameters as logits."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(logits)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.logits[inputs[:, 0].long()]


@pytest.fixture
def context() -> Callable[..., Context]:
    """12 examples of 3 classes in batches of 4, or as many as there are labels."""

    def make(net: torch.nn.Module | None = None, labels: list[int] | None = None) -> Context:
        given = np.array(labels if labels is not None else [0, 1, 2] * 4)
        inputs = np.arange(len(given), dtype=np.float32)[:, None]
        size = len(given) // PER_EPOCH or len(given)
        return Context(
            net=net or build("mlp-4", 3, 1, generator=generator(0, "init")),
            new_net=lambda stream: build("mlp-4", 3, 1, generator=generator(0, stream)),
            batches=Resident(inputs, given, order=Shuffled(len(given), size, seed=0)),
            labels=given,
            num_classes=3,
            total=EPOCHS * PER_EPOCH,
            epoch=PER_EPOCH,
            learning_rate=lambda step: 0.05 if step < 10 else 0.005,
            trusted=None,
            seed=0,
            device=torch.device("cpu"),
        )

    return make


def test_terms_of_joint_optimisation(context: Callable[..., Context], tmp_path: Path) -> None:
    log_p, uniform = Z.log_softmax(1), torch.full((3,), 1 / 3)
    assert prior_loss(log_p, uniform).item() == pytest.approx(1.335627, abs=1e-6)
    assert prior_loss(log_p, uniform).item() - np.log(3) == pytest.approx(0.237015, abs=1e-6)  # as a divergence
    assert entropy_loss(log_p).item() == pytest.approx(0.715113, abs=1e-6)
    method = JointLabels(context(Fixed(Z.clone()), labels=[0, 2]), str(tmp_path / "y.npy"), begin=1)
    batch = Batch(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 2]), torch.tensor([0, 1]))
    assert method.loss(batch, 0).item() == pytest.approx(3.241951, abs=2e-6)
    method.alpha = method.beta = 0.0
    assert method.loss(batch, 0).item() == pytest.approx(1.067107, abs=1e-6)


def test_labels_of_joint_optimisation(context: Callable[..., Context], tmp_path: Path) -> None:
    made = context()
    method = JointLabels(made, str(tmp_path / "y.npy"), begin=11, slots=10)
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(made.labels)).float()
    for epoch in range(EPOCHS):
        assert torch.equal(method.labels, one_hot) == (epoch < 11)
        assert not (tmp_path / "y.npy").exists()
        method.latest[:] = epoch + 1  # in place of predictions
        method.epoch_end(epoch)
    assert sorted(method.buffer[:, 0, 0].tolist()) == list(range(3, 13))
    assert np.load(tmp_path / "y.npy")[0, 0] == pytest.approx(np.mean(range(3, 13)))


def test_joint_labels_are_the_predictions_of_the_training_passes(
    context: Callable[..., Context], tmp_path: Path
) -> None:
    made = context()
    method = JointLabels(made, str(tmp_path / "y.npy"), begin=1, slots=1)
    for step in range(PER_EPOCH):
        method.loss(made.batches.batch(step), step)  # type: ignore[union-attr]
    method.epoch_end(0)
    expected = made.net(torch.arange(12.0)[:, None]).softmax(1)
    torch.testing.assert_close(method.labels, expected.detach())
    prior = JointLabels(made, str(tmp_path / "y.npy"), begin=1, prior="given").prior
    torch.testing.assert_close(prior, torch.full((3,), 1 / 3))


def test_hard_soft_labels_are_cross_entropy(digits: Run, tmp_path: Path) -> None:
    labels = gather(digits).train.labels
    np.save(tmp_path / "y.npy", np.eye(10)[labels])
    file = (tmp_path / "y.npy").as_posix()
    soft = replace(digits, weighting=None, method=f"SoftLabels({file!r})")
    model = "model/model.safetensors"
    soft, hard = (execute(run, tmp_path) for run in (soft, replace(digits, weighting=None, loss="LabelSmoothing(0)")))
    from safetensors.torch import load_file

    for name, tensor in load_file(hard / model).items():
        torch.testing.assert_close(load_file(soft / model)[name], tensor)


@pytest.mark.parametrize("percentile", [None, 97.0])
@pytest.mark.parametrize("matrix", [symmetric_matrix(10, 0.4), map_matrix([1, 2, 3, 4, 5, 6, 7, 8, 9, 0], 0.3)])
def test_anchor_points_recover_the_matrix(matrix: np.ndarray, percentile: float | None) -> None:
    true = np.random.default_rng(0).permutation(np.arange(1000) % 10)
    T = anchor_matrix(matrix[true], percentile)
    np.testing.assert_allclose(T, matrix, atol=1e-15)
    assert np.allclose(T, matrix.T) == np.allclose(matrix, matrix.T)


def test_anchor_points_follow_the_published_rule() -> None:
    p = np.random.default_rng(1).dirichlet(np.ones(4), 500)
    expected = np.empty((4, 4))
    for i in range(4):
        column = p[:, i].copy()  # the published program forgets to copy
        column[column >= np.percentile(column, 97, method="higher")] = 0
        expected[i] = p[column.argmax()]
    np.testing.assert_allclose(anchor_matrix(p), expected, rtol=1e-12)
    np.testing.assert_allclose(anchor_matrix(p, None), p[p.argmax(0)], rtol=1e-12)
    np.testing.assert_allclose(anchor_matrix(p, identity=1.0), np.eye(4))
    for bad in ([0.5, 0.5], [[1.0]], [[np.nan, 0.1]], np.empty((0, 3))):
        with pytest.raises(ValueError, match="probabilities must be"):
            anchor_matrix(bad)


def test_a_matrix_from_a_file(tmp_path: Path) -> None:
    matrix = symmetric_matrix(3, 0.3)
    np.save(tmp_path / "T.npy", matrix)
    file = (tmp_path / "T.npy").as_posix()
    target = torch.tensor([0, 2])
    by_file, by_name = (
        loss_from(parse(f"Forward({T})"), 3, [1, 1, 1])(Z, target) for T in (f"file({file!r})", "symmetric(0.3)")
    )
    assert by_file == by_name
    with pytest.raises(ValueError, match="needs a path"):
        loss_from(parse("Forward(file(3))"), 3, [1, 1, 1])


def test_the_best_dropout_rate_is_chosen(digits: Run) -> None:
    assert replace(digits, dropout=0.0).hash() == digits.hash()
    assert best({0.9: 0.1, 0.3: 0.5, 0.6: 0.5}) == 0.3


def test_a_curriculum_from_one_is_shuffling() -> None:
    rng = np.random.default_rng(0)
    labels, difficulty = rng.integers(0, 3, 50), rng.random(50)
    paced, plain = Paced(difficulty, labels, 7, 3, lambda step: 1.0), Shuffled(50, 7, 3)
    assert torch.equal(paced(range(30)), plain(range(30)))
    assert torch.equal(paced(range(11, 12)), plain(range(11, 12)))
    assert paced(range(0)).shape == (0, 7)


def test_each_class_has_at_least_one_example() -> None:
    order = Paced(np.array([3.0, 1.0, 2.0, 0.0]), np.array([0, 0, 1, 1]), 2, 0, lambda step: 1e-12)
    assert order.visible(0).tolist() == [False, True, False, True]
    assert set(order(range(4)).flatten().tolist()) == {1, 3}


@pytest.mark.parametrize("pacing", ["linear", "exponential", "step"])
def test_examples_in_use_grow_class_by_class(pacing: str) -> None:
    rng = np.random.default_rng(0)
    labels, difficulty = rng.choice(4, 400, p=[0.5, 0.3, 0.18, 0.02]), rng.random(400)
    fraction = fraction_at(0.2, 0.5, 0.9, pacing)
    order = Paced(difficulty, labels, 50, 0, lambda step: fraction(step / 80))
    before = np.zeros(400, bool)
    for step in range(0, 80, 8):
        visible = order.visible(step)
        assert (visible >= before).all()
        before = visible
        for label in range(4):
            inside, outside = (difficulty[(labels == label) & part] for part in (visible, ~visible))
            assert inside.max() < outside.min(initial=1)
            assert abs(len(inside) - fraction(step / 80) * (labels == label).sum()) < 1
        drawn = order(range(step, step + 8)).flatten().numpy()
        assert set(drawn) <= set(np.flatnonzero(visible))
    assert before.mean() == pytest.approx(0.9, abs=0.01)


def test_a_curriculum_orders_its_batches(context: Callable[..., Context], tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.arange(12.0))
    made, file = context(), (tmp_path / "d.npy").as_posix()
    method = method_from(parse(f"Curriculum({file!r}, start=0.5)"), made)
    assert isinstance(method, Curriculum)
    seen = made.batches.batch(0).index  # type: ignore[union-attr]
    assert set(seen.tolist()) <= set(range(6))
    weights = method.weights(Z, torch.tensor([0, 2]), torch.tensor([0, 1]), 0)
    assert weights is not None
    torch.testing.assert_close(weights, 2 * (1 - Z.softmax(1)[[0, 1], [0, 2]]))
    with pytest.raises(ValueError, match="sampler must be 'shuffled'"):
        method_from(parse(f"Curriculum({file!r})"), made)
