from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from reweigh.errors import DataError
from reweigh.lab.batches import Batch, Loader, Shuffled, channel_statistics
from reweigh.lab.batches.augment import draw
from reweigh.lab.batches.loader import resized
from reweigh.lab.data.source.images import Files


def picture(seed: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    height, width = rng.integers(10, 40, 2)
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


FILES = [picture(seed) for seed in range(11)]  # of different sizes, as photographs are
LABELS = np.arange(11) % 3
STATISTICS = channel_statistics(FILES)


def loader(**options: Any) -> Loader:
    given: dict[str, Any] = {"order": Shuffled(11, 4, seed=5), "seed": 5, "normalisation": STATISTICS}
    given |= {"resize": (18, 16), "crop": (12, 10), "workers": 0}
    return Loader(FILES, LABELS, **(given | options))


def same(a: Batch, b: Batch) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def normalised(image: NDArray[np.uint8]) -> torch.Tensor:
    standard = (image / 255 - np.array(STATISTICS.mean)) / np.array(STATISTICS.std)
    return torch.from_numpy(standard.transpose(2, 0, 1).copy()).float()


def test_a_batch_is_resized_cropped_and_flipped_as_drawn() -> None:
    step = 7
    batch = loader().batch(step)
    assert batch.inputs.shape == (4, 3, 12, 10)
    assert batch.index.tolist() == Shuffled(11, 4, seed=5)(range(step, step + 1))[0].tolist()
    assert batch.target.tolist() == LABELS[batch.index.numpy()].tolist()
    top, left, flip = (d[0].tolist() for d in draw(5, range(step, step + 1), 4, (6, 6)))
    for i in range(4):
        image = Image.fromarray(FILES[int(batch.index[i])]).resize((16, 18), Image.Resampling.BILINEAR)
        crop = image.crop((left[i], top[i], left[i] + 10, top[i] + 12))
        if flip[i]:
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        torch.testing.assert_close(batch.inputs[i], normalised(np.asarray(crop)), rtol=0, atol=2e-6)


def test_without_augmentation_a_picture_is_always_as_in_evaluation() -> None:
    plain = loader(augment=False)
    expected = torch.cat([batch.inputs for batch in plain.evaluation(4)])
    for batch in (plain.batch(0), plain.batch(9), next(plain.iterate(3))):
        assert torch.equal(batch.inputs, expected[batch.index])


def test_another_order_is_augmented_by_its_own_seed() -> None:
    other = loader().with_order(Shuffled(11, 4, seed=6), 6)
    assert same(other.batch(2), loader(order=Shuffled(11, 4, seed=6), seed=6).batch(2))


def test_evaluation_crops_the_middle_of_everything_once() -> None:
    batches = list(loader().evaluation(4))
    assert [len(batch.index) for batch in batches] == [4, 4, 3]
    assert torch.cat([batch.index for batch in batches]).tolist() == list(range(11))
    assert torch.cat([batch.target for batch in batches]).tolist() == LABELS.tolist()
    middle = resized(FILES[5], (18, 16))[3:15, 3:13]
    torch.testing.assert_close(batches[1].inputs[1], normalised(middle), rtol=0, atol=2e-6)
    (some,) = loader().evaluation(4, rows=torch.tensor([5, 0, 10]))
    assert some.index.tolist() == [5, 0, 10]
    assert torch.equal(some.inputs[0], batches[1].inputs[1])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_any_number_of_workers_gives_the_same_batches() -> None:
    before = torch.get_rng_state()
    expected = [loader().batch(step) for step in range(40)]
    for workers in (0, 1, 2):
        assert all(map(same, loader(workers=workers).iterate(0, 40), expected))
        evaluated = list(loader(workers=workers).evaluation(4))
        assert all(map(same, evaluated, loader().evaluation(4)))
        assert len(evaluated) == 3
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_resume_in_mid_epoch_goes_on_exactly() -> None:
    whole = list(loader().iterate(0, 40))
    for start in (1, 33):
        endless = loader(workers=2).iterate(start)
        for step in range(start, start + 3):
            assert same(next(endless), whole[step])
        del endless


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_image_files(tmp_path: Path) -> None:
    for i, image in enumerate(FILES):
        Image.fromarray(image).save(tmp_path / f"{i}.png")
    files = Files(tmp_path, tuple(f"{i}.png" for i in range(len(FILES))))
    part = Loader(files, LABELS, normalisation=channel_statistics(files), resize=(18, 16), crop=(12, 10), workers=2)
    assert all(map(same, part.evaluation(4), loader().evaluation(4)))


def test_channels_last_changes_the_layout_alone() -> None:
    batch = loader(channels_last=True).batch(0)
    assert batch.inputs.is_contiguous(memory_format=torch.channels_last)
    assert loader().batch(0).inputs.is_contiguous()
    assert same(batch, loader().batch(0))


def test_labels_can_be_replaced() -> None:
    part = loader()
    assert part.with_labels(np.full(11, 2)).batch(0).target.tolist() == [2] * 4
    assert part.with_labels(np.full((11, 3), 0.5)).batch(0).target.shape == (4, 3)
    assert len(part) == 11


class Broken(list[NDArray[np.uint8]]):
    def __getitem__(self, i: Any) -> Any:
        raise DataError(f"photo{i}.jpg: cannot be decoded")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])  # a Ctrl-C comes to all of a terminal's processes
def test_workers_leave_a_stop_to_the_parent(number: signal.Signals) -> None:
    batches = loader(workers=1).iterate()
    next(batches)
    for worker in multiprocessing.active_children():
        os.kill(int(worker.pid or 0), number)
    for step in range(1, 9):
        assert same(next(batches), loader().batch(step))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_that_cannot_be_decoded_is_named(workers: int) -> None:
    part = Loader(Broken(FILES), LABELS, workers=workers)
    with pytest.raises(DataError, match=r"^photo0\.jpg: cannot be decoded$"):
        next(part.evaluation(2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: loader(crop=(19, 10)), r"crop must lie within resize \(18, 16\), not \(19, 10\)"),
        (lambda: loader(crop=(0, 10)), "crop must lie within resize"),
        (lambda: loader(workers=-1), "workers must be 0 or more, not -1"),
        (lambda: loader(order=None).batch(0), "order is None"),
        (lambda: loader().batch(-2), "step must be 0 or more, not -2"),
        (lambda: loader(order=Shuffled(12, 12, seed=0)).batch(0), "order gives index 11, but there are 11"),
        (lambda: next(loader().evaluation(0)), "batch_size must be 1 or more, not 0"),
        (lambda: Loader(FILES, LABELS[:3]), r"labels must be \(11,\) integers"),
    ],
)
def test_refusals(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_mars_at_its_own_size() -> None:
    root = os.environ.get("REWEIGH_DATA")
    train = Path(root or "") / "mini_mars" / "bbox_train"
    if root is None or not train.is_dir():
        pytest.skip("REWEIGH_DATA names no folder with mini_mars")
    person = min(train.iterdir())
    files = Files(person, tuple(sorted(path.name for path in person.iterdir()))[:6])
    part = Loader(files, np.zeros(len(files), np.int64), resize=(256, 128), crop=(224, 112), workers=0)
    (batch,) = part.evaluation(6)
    assert batch.inputs.shape == (len(files), 3, 224, 112)
    whole = resized(files[0], (256, 128))
    torch.testing.assert_close(batch.inputs[0, 0, 0, 0], torch.tensor(whole[16, 8, 0] / 255).float())
