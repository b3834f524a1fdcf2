from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from reweigh.lab.batches import AUGMENTATIONS, Balanced, Batch, Resident, Shuffled, channel_statistics
from reweigh.lab.batches.augment import canvas, draw

N = 70
IMAGES = np.random.default_rng(0).integers(0, 256, (N, 8, 8, 3), dtype=np.uint8)
LABELS = np.random.default_rng(1).integers(0, 5, N)
FEATURES = np.random.default_rng(2).normal(size=(N, 64)).astype(np.float32)
STATISTICS = channel_statistics(IMAGES)


def resident(augmentation: str = "pad-crop-flip", **options: Any) -> Resident:
    given: dict[str, Any] = {"order": Shuffled(N, 16, seed=3), "seed": 3, "normalisation": STATISTICS}
    return Resident(IMAGES, LABELS, augmentation=augmentation, **(given | options))


def same(a: Batch, b: Batch) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_another_order_is_planned_anew() -> None:
    first = resident()
    first.batch(0)
    other = first.with_order(Shuffled(N, 16, seed=9), 9)
    assert same(other.batch(0), resident(order=Shuffled(N, 16, seed=9), seed=9).batch(0))


def slow(image: NDArray[np.uint8]) -> torch.Tensor:
    """An image (C, H, W), normalised pixel by pixel."""
    out = torch.empty(image.shape)
    for c in range(image.shape[0]):
        for y in range(image.shape[1]):
            for x in range(image.shape[2]):
                out[c, y, x] = (int(image[c, y, x]) / 255 - STATISTICS.mean[c]) / STATISTICS.std[c]
    return out


@pytest.mark.parametrize("augmentation", [name for name, kind in AUGMENTATIONS.items() if not kind.distorts])
def test_a_batch_is_what_its_parts_say(augmentation: str) -> None:
    order, step = Shuffled(N, 16, seed=3), 133  # in the second block
    batch = resident(augmentation).batch(step)
    assert torch.equal(batch.index, order(range(step, step + 1))[0])
    assert batch.target.tolist() == LABELS[batch.index.numpy()].tolist()
    assert batch.inputs.dtype == torch.float32

    settings = AUGMENTATIONS[augmentation]
    whole = canvas(IMAGES, settings).numpy()
    top, left, flip = (d[0] for d in draw(3, range(step, step + 1), 16, (settings.room, settings.room)))
    for i in range(16):
        t, le = int(top[i]), int(left[i])
        crop = whole[batch.index[i], :, t : t + 8, le : le + 8]
        if settings.flip and flip[i]:
            crop = crop[:, :, ::-1]
        torch.testing.assert_close(batch.inputs[i], slow(crop), rtol=0, atol=2e-6)


def test_steps_may_be_asked_in_any_order_and_resumed_anywhere() -> None:
    unbroken = [resident().batch(step) for step in range(3)]
    whole = resident()
    rows = list(whole.iterate(0, 140))
    assert all(same(a, b) for a, b in zip(unbroken, rows, strict=False))
    for start in (1, 77, 128, 139):
        resumed = resident()
        assert same(next(resumed.iterate(start)), rows[start])
    assert same(whole.batch(5), rows[5])
    assert same(whole.batch(138), rows[138])


def test_seeds_and_steps_differ() -> None:
    a, b = resident(), resident(seed=4)
    assert torch.equal(a.batch(0).index, b.batch(0).index)
    assert not torch.equal(a.batch(0).inputs, b.batch(0).inputs)
    per_epoch = N // 16
    epochs = [a.batch(step) for step in (0, per_epoch)]
    assert not torch.equal(epochs[0].index, epochs[1].index)


def test_global_random_state_is_untouched() -> None:
    before = torch.get_rng_state()
    resident().batch(0)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
@pytest.mark.parametrize("batch_size", [1, 16, 32, 70, 1000])
def test_evaluation_sees_everything_once_and_plain(augmentation: str, batch_size: int) -> None:
    part = resident(augmentation)
    batches = list(part.evaluation(batch_size))
    assert [len(batch.index) for batch in batches] == [min(batch_size, N - i) for i in range(0, N, batch_size)]
    index, target, inputs = (torch.cat([getattr(b, name) for b in batches]) for name in ("index", "target", "inputs"))
    assert index.tolist() == list(range(N))
    assert target.tolist() == LABELS.tolist()
    middle = canvas(IMAGES, AUGMENTATIONS[augmentation]).numpy()
    if augmentation == "resize-crop-flip":
        middle = middle[:, :, 2:-2, 2:-2]
    else:
        middle = IMAGES.transpose(0, 3, 1, 2)
    torch.testing.assert_close(inputs[3], slow(middle[3]), rtol=0, atol=2e-6)
    torch.testing.assert_close(inputs[-1], slow(middle[-1]), rtol=0, atol=2e-6)
    rows = torch.tensor([N - 1, 0, 3])
    some = list(part.evaluation(2, rows))
    assert [batch.index.tolist() for batch in some] == [[N - 1, 0], [3]]
    assert torch.equal(torch.cat([batch.inputs for batch in some]), inputs[rows])
    assert torch.equal(torch.cat([batch.target for batch in some]), target[rows])


def test_without_statistics_pixels_go_from_0_to_1() -> None:
    batch = resident("none", normalisation=None).batch(0)
    expected = torch.from_numpy(IMAGES[batch.index.numpy()].transpose(0, 3, 1, 2) / 255).float()
    torch.testing.assert_close(batch.inputs, expected)


def test_mean_only() -> None:
    batch = resident("none", normalisation=STATISTICS.mean_only()).batch(0)
    pixels = torch.from_numpy(IMAGES[batch.index.numpy()].transpose(0, 3, 1, 2) / 255)
    expected = pixels - torch.tensor(STATISTICS.mean, dtype=torch.float64).view(3, 1, 1)
    torch.testing.assert_close(batch.inputs, expected.float(), rtol=0, atol=1e-6)


def test_channels_last_changes_the_layout_alone() -> None:
    a, b = resident(), resident(channels_last=True)
    assert b.batch(0).inputs.is_contiguous(memory_format=torch.channels_last)
    assert next(b.evaluation(8)).inputs.is_contiguous(memory_format=torch.channels_last)
    assert same(a.batch(0), b.batch(0))


def test_features_come_as_they_are() -> None:
    part = Resident(FEATURES, LABELS, order=Balanced(LABELS, 20, seed=0))
    batch = part.batch(4)
    np.testing.assert_array_equal(batch.inputs.numpy(), FEATURES[batch.index.numpy()])
    assert torch.bincount(batch.target).tolist() == [4] * 5
    assert torch.equal(torch.cat([b.inputs for b in part.evaluation(32)]), torch.from_numpy(FEATURES))


def test_read_only_arrays_are_fine_and_nothing_is_written_to_them() -> None:
    images, features = IMAGES.copy(), FEATURES.copy()
    for array in (images, features):
        array.setflags(write=False)
    Resident(images, LABELS, normalisation=STATISTICS, augmentation="none")
    grey = images[..., :1]
    assert next(Resident(grey, LABELS).evaluation()).inputs.shape == (N, 1, 8, 8)
    part = Resident(features, LABELS)
    next(part.evaluation()).inputs.zero_()
    np.testing.assert_array_equal(features, FEATURES)


def test_labels_can_be_replaced() -> None:
    part = resident()
    hard = part.with_labels(np.zeros(N, np.int64))
    soft = part.with_labels(torch.full((N, 5), 0.2))
    assert hard.batch(9).target.unique().tolist() == [0]
    assert soft.batch(9).target.shape == (16, 5)
    assert torch.equal(hard.batch(9).inputs, part.batch(9).inputs)
    assert part.batch(9).target.tolist() == LABELS[part.batch(9).index.numpy()].tolist()


def test_a_plan_in_a_fixed_tensor_is_all_a_captured_step_needs() -> None:
    part = resident()
    fixed = part.plan(0).clone()
    for step in (2, 131):
        fixed.copy_(part.plan(step))
        assert same(part.assemble(fixed), part.batch(step))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: resident("pad"), "augmentation must be one of none, .* not 'pad'"),
        (lambda: Resident(FEATURES, LABELS, augmentation="pad-crop-flip"), "must be 'none' for features"),
        (lambda: Resident(FEATURES, LABELS, normalisation=STATISTICS), "is for 3 channels, inputs have 64"),
        (lambda: Resident(IMAGES.astype(float), LABELS), r"not \(70, 8, 8, 3\) of float64"),
        (lambda: Resident(IMAGES, LABELS[1:]), r"labels must be \(70,\) integers .* not \(69,\) of int64"),
        (lambda: Resident(IMAGES, LABELS.astype(float)), r"not \(70,\) of float64"),
        (lambda: Resident(IMAGES, LABELS).batch(0), "order is None"),
        (lambda: resident().batch(-1), "step must be 0 or more, not -1"),
        (lambda: resident(order=Shuffled(71, 71, seed=0)).batch(0), "order gives index 70, but there are 70"),
        (lambda: next(resident().evaluation(0)), "batch_size must be 1 or more, not 0"),
    ],
)
def test_refusals(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
def test_on_a_gpu_the_same_without_waiting(augmentation: str) -> None:
    host, device = resident(augmentation), resident(augmentation, device="cuda")
    device.batch(0)
    try:
        torch.cuda.set_sync_debug_mode("error")
        batch = device.batch(1)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for a, b in zip(host.batch(1), batch, strict=True):
        torch.testing.assert_close(a, b.cpu())
