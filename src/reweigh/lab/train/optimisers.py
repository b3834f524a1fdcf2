"""torch's optimisers, with the two options in which Caffe's, used by the paper, differ.

Momentum     torch  V = mu V + g,      w -= lr V         Caffe  V = mu V + lr g,  w -= V
             Equal while lr is constant; when it changes, torch's V must be multiplied by lr_old / lr_new.
Adam         torch  m_hat / (sqrt(v_hat) + eps)          Caffe  sqrt(1 - b2^t) m_hat / (sqrt(v) + delta)
             Equal with eps = delta / sqrt(1 - b2^t) at iteration t = 1, 2, ...

In both, weight decay is added to the gradient of every parameter, biases and norms included; AdamW decouples it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from reweigh.lab.spec import Run

_NORMS = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.SyncBatchNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
)


def parameter_groups(net: nn.Module, weight_decay: float, *, exempt: bool = False) -> list[dict[str, Any]]:
    """Return the trainable parameters as groups for torch.optim: one, or two if biases and norms are not decayed.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    >>> [(len(group["params"]), group["weight_decay"]) for group in parameter_groups(net, 1e-4, exempt=True)]
    [(2, 0.0001), (4, 0.0)]
    """
    free = set(_biases_and_norms(net)) if exempt else set()
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    if not parameters:
        raise ValueError("net has no trainable parameters")
    groups = [
        {"params": [parameter for parameter in parameters if parameter not in free], "weight_decay": weight_decay},
        {"params": [parameter for parameter in parameters if parameter in free], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def build_optimiser(net: nn.Module, run: Run) -> torch.optim.Optimizer:
    """Return the optimiser of a run, over the trainable parameters of `net`.

    sgd, momentum, nesterov: torch.optim.SGD; adam, adam-caffe: torch.optim.Adam; adamw: torch.optim.AdamW.
    Call `set_learning_rate` before each of its steps. On a GPU the step is one fused kernel that reads the rate from a
    tensor, so that it can be captured; captured or not, the arithmetic is the same.
    """
    groups = parameter_groups(net, run.weight_decay, exempt=run.decay_exempt)
    device = groups[0]["params"][0].device
    on_gpu = device.type == "cuda"
    lr: Any = torch.tensor(run.lr, dtype=torch.float32, device=device) if on_gpu else run.lr
    fused = True if on_gpu else None
    if run.optimiser == "adamw":
        return torch.optim.AdamW(groups, lr=lr, betas=run.betas, eps=run.eps, fused=fused, capturable=on_gpu)
    if run.optimiser == "adam":
        return torch.optim.Adam(groups, lr=lr, betas=run.betas, eps=run.eps, fused=fused, capturable=on_gpu)
    if run.optimiser == "adam-caffe":
        # torch keeps and saves the additional entry, which `set_learning_rate` reads
        groups = [group | {"delta": run.eps} for group in groups]
        return torch.optim.Adam(groups, lr=lr, betas=run.betas, fused=fused, capturable=on_gpu)
    momentum = 0.0 if run.optimiser == "sgd" else run.momentum
    nesterov = run.optimiser == "nesterov" and momentum > 0  # torch refuses it at 0, where it is plain SGD
    return torch.optim.SGD(groups, lr=lr, momentum=momentum, nesterov=nesterov, fused=fused)


def restore(optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a saved state, but keep the implementation of this optimiser: the state may be from another device."""
    here = [{key: group[key] for key in _HOW if key in group} for group in optimiser.param_groups]
    optimiser.load_state_dict(state)
    for group, how in zip(optimiser.param_groups, here, strict=True):
        rate = group.pop("rate", None) or float(group["lr"])
        group.update(how)
        _set_rate(group, rate)
    for parameter, kept in optimiser.state.items():
        for name, value in kept.items():
            # a fused step reads both in memory order, which is channels-last only on a GPU
            if isinstance(value, Tensor) and value.shape == parameter.shape and value.stride() != parameter.stride():
                kept[name] = torch.empty_like(parameter).copy_(value)


_HOW = ("lr", "fused", "foreach", "capturable")


def set_learning_rate(optimiser: torch.optim.Optimizer, lr: float, step: int, *, caffe_momentum: bool = False) -> None:
    """Set the learning rate of an iteration, and adam-caffe's epsilon, before `optimiser.step()`.

    Args:
        optimiser: the optimiser.
        lr: the learning rate of this iteration.
        step: the iteration, from 0.
        caffe_momentum: rescale the velocities when lr changes, so that they are Caffe's.
    """
    for group in optimiser.param_groups:
        last = _rate(group)
        if last != lr:
            if caffe_momentum:
                _rescale(optimiser, group, last, lr)
            _set_rate(group, lr)
        if "delta" in group:
            group["eps"] = group["delta"] / math.sqrt(1 - group["betas"][1] ** (step + 1))


def _rate(group: dict[str, Any]) -> float:
    """Return the rate; of a rate in a tensor the group has a copy, because reading the tensor waits for the device."""
    if not isinstance(group["lr"], Tensor):
        return float(group["lr"])
    if "rate" not in group:
        group["rate"] = float(group["lr"])
    return float(group["rate"])


def _set_rate(group: dict[str, Any], lr: float) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(lr)
        group["rate"] = lr
    else:
        group["lr"] = lr


def _rescale(optimiser: torch.optim.Optimizer, group: dict[str, Any], old: float, new: float) -> None:
    if new == 0:
        raise ValueError("lr is 0, for which Caffe's momentum is undefined; use a schedule that stays above 0")
    for parameter in group["params"]:
        velocity = optimiser.state.get(parameter, {}).get("momentum_buffer")
        if velocity is not None:
            velocity.mul_(old / new)


def _biases_and_norms(net: nn.Module) -> Iterator[nn.Parameter]:
    for module in net.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if name.endswith("bias") or isinstance(module, _NORMS):
                yield parameter
