"""Values that the host computes for each iteration, in tensors at fixed places on the device.

A captured graph reads them from there. Writing the same value again does nothing, so a loss may write its values itself
and still be captured, once `prepare` has written them for its step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def widest(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on a device without it."""
    return torch.float32 if device.type == "mps" else torch.float64


class DeviceNumber:
    """A number on the device, in float64 where available, so that float32 arithmetic gives the same as with a float.

    Args:
        device: of the tensor.

    >>> number = DeviceNumber(torch.device("cpu"))
    >>> number.set(0.5) is number.set(0.75), number.set(0.75)
    (True, tensor(0.7500, dtype=torch.float64))
    """

    def __init__(self, device: torch.device) -> None:
        self._tensor = torch.zeros((), dtype=widest(device), device=device)
        self._value = 0.0

    def set(self, value: float) -> Tensor:
        """Set the value and return the tensor."""
        if value != self._value:
            self._tensor.fill_(value)
            self._value = value
        return self._tensor


class DeviceDraws:
    """Tensors that the host draws for every step, on the device.

    Args:
        draw: (step, batch size) -> tensors, of the same shapes at every step.
        device: of the tensors.

    >>> drawn = DeviceDraws(lambda step, size: (torch.arange(size) + step,), torch.device("cpu"))
    >>> drawn.at(1, 3)[0] is drawn.at(5, 3)[0], drawn.at(5, 3)
    (True, (tensor([5, 6, 7]),))
    """

    def __init__(self, draw: Callable[[int, int], tuple[Tensor, ...]], device: torch.device) -> None:
        self._draw, self._device = draw, device
        self._for: tuple[int, int] | None = None
        self._tensors: tuple[Tensor, ...] = ()

    def at(self, step: int, size: int) -> tuple[Tensor, ...]:
        """Return the tensors of that step."""
        if self._for != (step, size):
            drawn = self._draw(step, size)
            if [tensor.shape for tensor in drawn] != [tensor.shape for tensor in self._tensors]:
                self._tensors = tuple(torch.empty_like(tensor, device=self._device) for tensor in drawn)
            for place, tensor in zip(self._tensors, drawn, strict=True):
                if place.is_cuda and not tensor.is_cuda:
                    tensor = tensor.pin_memory()  # so that the copy does not wait for the device
                place.copy_(tensor, non_blocking=True)
            self._for = step, size
        return self._tensors
