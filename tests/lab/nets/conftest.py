from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """These nets see tiny inputs: several threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
