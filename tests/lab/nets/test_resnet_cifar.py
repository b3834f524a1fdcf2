from __future__ import annotations

from typing import Any

import pytest

from reweigh.lab.nets.resnet import resnet_cifar


@pytest.mark.parametrize("depth", [2, 7, 21, 52])
def test_depths_other_than_6n_plus_2_are_refused(depth: int) -> None:
    with pytest.raises(ValueError, match=rf"depth must be 6n \+ 2 .* not {depth}"):
        resnet_cifar(depth, 10)


def test_unknown_shortcut_is_refused() -> None:
    wrong: Any = "B"
    with pytest.raises(ValueError, match=r"shortcut must be \"A\" or \"projection\", not 'B'"):
        resnet_cifar(20, 10, shortcut=wrong)
