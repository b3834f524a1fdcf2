"""The one-gather augmentation against slow loops over pixels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from reweigh.lab.batches import Loader, Resident, Shuffled
from reweigh.lab.batches.augment import (
    AUGMENTATIONS,
    DRAWS,
    Augmentation,
    canvas,
    centre,
    cut,
    distort,
    draw,
    draw_distortions,
    mirror,
    normalise,
    window_start,
)
from reweigh.lab.batches.statistics import Normalisation

PAD, RESIZE = AUGMENTATIONS["pad-crop-flip"], AUGMENTATIONS["resize-crop-flip"]


def pictures(n: int, height: int, width: int, channels: int = 3) -> NDArray[np.uint8]:
    return np.random.default_rng(5).integers(0, 256, (n, height, width, channels), dtype=np.uint8)


def slow_pad(image: NDArray[np.uint8], pad: int) -> NDArray[np.uint8]:
    height, width, channels = image.shape
    out = np.zeros((height + 2 * pad, width + 2 * pad, channels), np.uint8)
    for y in range(height):
        for x in range(width):
            out[y + pad, x + pad] = image[y, x]
    return out


def slow_bilinear(image: NDArray[np.uint8], height: int, width: int) -> NDArray[np.float64]:
    h, w, channels = image.shape
    out = np.zeros((height, width, channels))
    for i in range(height):
        for j in range(width):
            y = min(max((i + 0.5) * h / height - 0.5, 0.0), h - 1.0)
            x = min(max((j + 0.5) * w / width - 0.5, 0.0), w - 1.0)
            y0, x0 = math.floor(y), math.floor(x)
            y1, x1 = min(y0 + 1, h - 1), min(x0 + 1, w - 1)
            fy, fx = y - y0, x - x0
            upper = (1 - fx) * image[y0, x0].astype(float) + fx * image[y0, x1]
            lower = (1 - fx) * image[y1, x0].astype(float) + fx * image[y1, x1]
            out[i, j] = (1 - fy) * upper + fy * lower
    return out


def slow_crop(whole: NDArray[np.uint8], top: int, left: int, flip: int, h: int, w: int) -> NDArray[np.uint8]:
    out = np.zeros((whole.shape[2], h, w), np.uint8)
    for c in range(whole.shape[2]):
        for y in range(h):
            for x in range(w):
                out[c, y, x] = whole[top + y, left + (w - 1 - x if flip else x), c]
    return out


@pytest.mark.parametrize("augmentation", [PAD, RESIZE, Augmentation(), Augmentation(pad=2)])
@pytest.mark.parametrize("shape", [(8, 8, 3), (7, 5, 3), (6, 9, 1)])
def test_every_pixel_is_the_slow_loops(augmentation: Augmentation, shape: tuple[int, int, int]) -> None:
    images = pictures(4, *shape)
    height, width, _ = shape
    whole = canvas(images, augmentation)
    if not augmentation.enlarge:
        for image, laid in zip(images, whole, strict=True):
            np.testing.assert_array_equal(laid.numpy().transpose(1, 2, 0), slow_pad(image, augmentation.pad))

    room = augmentation.room
    corners = [(0, 0), (0, room), (room, 0), (room, room), (room // 2, room // 3)]
    cases = [(i, top, left, flip) for i in (3, 0) for top, left in corners for flip in (0, 1)]
    index, top, left, flip = torch.tensor(cases).unbind(1)
    crops = mirror(cut(whole, window_start(whole.shape, index, top, left), (height, width)), flip)
    for (i, t, le, f), crop in zip(cases, crops, strict=True):
        source = whole[i].numpy().transpose(1, 2, 0)
        np.testing.assert_array_equal(crop.numpy(), slow_crop(source, t, le, f, height, width))


@pytest.mark.parametrize("shape", [(32, 32, 3), (5, 7, 3)])
def test_resizing_is_bilinear(shape: tuple[int, int, int]) -> None:
    image = pictures(1, *shape)[0]
    large = canvas(image[None], RESIZE)[0].numpy().transpose(1, 2, 0)
    exact = slow_bilinear(image, shape[0] + 4, shape[1] + 4)
    assert large.shape == exact.shape
    # Rounded to the nearest pixel value; where float32 and float64 differ at a half, either is the nearest.
    assert np.abs(large - exact).max() <= 0.5 + 1e-4


def test_resizing_in_chunks_is_resizing_one_by_one() -> None:
    images = pictures(1030, 2, 3)
    together = canvas(images, RESIZE)
    assert torch.equal(together[1027:1028], canvas(images[1027:1028], RESIZE))


@pytest.mark.parametrize("channels_last", [False, True])
def test_normalise(channels_last: bool) -> None:
    images = torch.from_numpy(pictures(3, 4, 5).transpose(0, 3, 1, 2).copy())
    statistics = Normalisation((0.4, 0.5, 0.6), (0.2, 0.3, 0.25))
    out = normalise(images, *statistics.pixels(torch.device("cpu")), channels_last=channels_last)
    for c in range(3):
        slow = (images[:, c].double() / 255 - statistics.mean[c]) / statistics.std[c]
        torch.testing.assert_close(out[:, c], slow.float(), rtol=0, atol=1e-6)
    assert out.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)


def test_normalise_leaves_its_input_alone() -> None:
    images = torch.full((1, 1, 2, 2), 7, dtype=torch.uint8)
    normalise(images, torch.ones(1), torch.ones(1))
    assert images.unique().tolist() == [7]


@pytest.mark.parametrize("augmentation", [Augmentation(), PAD, Augmentation(pad=1)])
def test_the_middle_of_a_padded_image_is_the_image(augmentation: Augmentation) -> None:
    images = pictures(2, 5, 6)
    middle = centre(canvas(images, augmentation), (5, 6))
    np.testing.assert_array_equal(middle.numpy(), images.transpose(0, 3, 1, 2))


def test_draws_depend_on_seed_and_step_alone() -> None:
    whole = draw(1, range(20), 64, (8, 3))
    part = draw(1, range(13, 15), 64, (8, 3))
    for a, b in zip(whole, part, strict=True):
        assert torch.equal(a[13:15], b)
    assert not torch.equal(whole[0], draw(2, range(20), 64, (8, 3))[0])
    assert not torch.equal(whole[0][0], whole[0][1])


def test_draws_are_uniform_over_their_range() -> None:
    top, left, flip = draw(0, range(200), 256, (8, 3))
    n = top.numel()
    for values, k in ((top, 9), (left, 4), (flip, 2), (top * 8 + left * 2 + flip, 72)):
        counts = torch.bincount(values.flatten(), minlength=k).double()
        assert len(counts) == k
        chi_square = ((counts - n / k) ** 2 / (n / k)).sum().item()
        assert chi_square < k - 1 + 5 * math.sqrt(2 * (k - 1))
    assert draw(0, range(0), 4, (8, 8))[0].shape == (0, 4)


@pytest.mark.parametrize(("pad", "enlarge"), [(-1, 0), (0, -4), (4, 4)])
def test_impossible_augmentations_are_refused(pad: int, enlarge: int) -> None:
    with pytest.raises(ValueError, match=f"not {pad} and {enlarge}"):
        Augmentation(pad=pad, enlarge=enlarge)


def test_distortions_stay_within_their_bounds() -> None:
    images = torch.from_numpy(pictures(64, 16, 16, 3)).permute(0, 3, 1, 2)
    draws = draw_distortions(0, range(3, 4), 64)[0]
    out = distort(images, draws)
    assert out.shape == images.shape
    assert out.dtype == torch.float32
    assert out.min() >= 0
    assert out.max() <= 255
    erased = (out == 127.5).all(1).float().mean((1, 2))
    assert erased.min() > 0
    assert erased.max() <= 0.33  # a square of a quarter, or what of it is inside
    again = draw_distortions(0, range(8), 64)[3]
    assert torch.equal(draws, again), "a function of seed and step"


def test_a_distortion_of_nothing_changes_nothing() -> None:
    images = torch.from_numpy(pictures(3, 9, 7, 3)).permute(0, 3, 1, 2)
    draws = torch.full((DRAWS, 3), 2**23)  # in the middle: no change of colours
    draws[0] = 2**24  # all of the area
    draws[6:] = 2**27  # the erased square is outside
    torch.testing.assert_close(distort(images, draws), images.float(), atol=1e-2, rtol=0)


@pytest.mark.parametrize("kind", ["resident", "loader"])
def test_strong_augmentation_is_for_training_only(kind: str) -> None:
    images, labels = pictures(8, 32, 32, 3), np.arange(8)
    order = Shuffled(8, 4, seed=0)
    batches: Any
    if kind == "resident":
        batches = Resident(images, labels, order=order, augmentation="strong")
        plain = Resident(images, labels)
    else:
        sizes = {"resize": (32, 32), "crop": (28, 28), "workers": 0}
        batches = Loader(list(images), labels, order=order, distorts=True, **sizes)
        plain = Loader(list(images), labels, augment=False, **sizes)
    first, again = batches.batch(2), next(iter(batches.iterate(2, 3)))
    torch.testing.assert_close(first.inputs, again.inputs, rtol=0, atol=0)
    assert not torch.equal(batches.batch(2).inputs, batches.batch(4).inputs)
    for one, other in zip(batches.evaluation(8), plain.evaluation(8), strict=True):
        torch.testing.assert_close(one.inputs, other.inputs, rtol=0, atol=0)
