"""Compare the criterion with torch's own sample inputs of cross entropy; prints how many were compared.

In a process of its own (test_as_torch.py): torch's test suite forbids setting flags such as that of cuDNN.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from reweigh import CCE, Criterion


def samples() -> list[tuple[Tensor, Tensor, dict[str, Any]]]:
    """Logits, target and settings of every sample."""
    # not at the top, since pytest imports this file to look for doctests
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db

    found = []
    for op in op_db:
        if op.name == "nn.functional.cross_entropy":
            found += [(s.input, s.args[0], s.kwargs) for s in op.sample_inputs("cpu", torch.float64, True)]
    for info in module_db:
        if info.module_cls is nn.CrossEntropyLoss:
            for s in info.module_inputs_func(info, "cpu", torch.float64, True, True):
                found.append((*s.forward_input.args, s.constructor_input.kwargs))
    return found


def is_exception(target: Tensor, settings: dict[str, Any]) -> bool:
    """Whether docs/criterion.md lists a call among the differences."""
    if not target.is_floating_point():
        return bool((target == settings.get("ignore_index", -100)).all())  # nothing valid: 0 instead of NaN
    weighted_mean = settings.get("weight") is not None and settings.get("reduction", "mean") == "mean"
    return weighted_mean or settings.get("ignore_index", -100) >= 0  # the latter is refused


def main() -> None:
    compared, exceptions = 0, 0
    for logits, target, settings in samples():
        if is_exception(target, settings):
            exceptions += 1
            continue
        values, gradients = [], []
        for loss in (Criterion(CCE(), **settings), nn.CrossEntropyLoss(**settings)):
            z = logits.detach().clone().requires_grad_()
            values.append(loss(input=z, target=target))
            gradients.append(torch.autograd.grad(values[-1].sum(), z)[0])
        torch.testing.assert_close(*values)
        torch.testing.assert_close(*gradients)
        compared += 1
    print(f"{compared} compared, {exceptions} exceptions")


if __name__ == "__main__":
    main()
