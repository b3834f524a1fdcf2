"""What the host decides for an iteration, in places on the device that stay: a captured iteration reads it from there.

Writing what was written last does nothing. So a loss may write its cells itself, and be captured all the same once they
have been written for its step (`prepare`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def widest(device: torch.device) -> torch.dtype:
    """float64, or float32 where the device has none."""
    return torch.float32 if device.type == "mps" else torch.float64


class DeviceNumber:
    """A number on the device, in float64 where the device has it: beside float32 it computes as the number itself.

    Args:
        device: where it lies.

    >>> number = DeviceNumber(torch.device("cpu"))
    >>> number.set(0.5) is number.set(0.75), number.set(0.75)
    (True, tensor(0.7500, dtype=torch.float64))
    """

    def __init__(self, device: torch.device) -> None:
        self._tensor = torch.zeros((), dtype=widest(device), device=device)
        self._value = 0.0

    def set(self, value: float) -> Tensor:
        """The number as a tensor, with this value."""
        if value != self._value:
            self._tensor.fill_(value)
            self._value = value
        return self._tensor


class DeviceDraws:
    """Tensors that the host makes for every step, on the device.

    Args:
        draw: (step, size of the batch) -> tensors, of the same shapes at every step.
        device: where they go.

    >>> drawn = DeviceDraws(lambda step, size: (torch.arange(size) + step,), torch.device("cpu"))
    >>> drawn.at(1, 3)[0] is drawn.at(5, 3)[0], drawn.at(5, 3)
    (True, (tensor([5, 6, 7]),))
    """

    def __init__(self, draw: Callable[[int, int], tuple[Tensor, ...]], device: torch.device) -> None:
        self._draw, self._device = draw, device
        self._for: tuple[int, int] | None = None
        self._tensors: tuple[Tensor, ...] = ()

    def at(self, step: int, size: int) -> tuple[Tensor, ...]:
        """Those of that step."""
        if self._for != (step, size):
            drawn = self._draw(step, size)
            if [tensor.shape for tensor in drawn] != [tensor.shape for tensor in self._tensors]:
                self._tensors = tuple(torch.empty_like(tensor, device=self._device) for tensor in drawn)
            for place, tensor in zip(self._tensors, drawn, strict=True):
                if place.is_cuda and not tensor.is_cuda:
                    tensor = tensor.pin_memory()  # so that the copy need not wait for what the device is doing
                place.copy_(tensor, non_blocking=True)
            self._for = step, size
        return self._tensors
