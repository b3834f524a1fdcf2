"""Weightings, losses, methods and nets from a user's own Python files: `my.py:curve`, `my.py:Net(width=64)`.

A run names the file, the sha256 of its text (`code_hash`) and keeps the text in its record. The file is executed only
for a run with `own_code`, which is set by naming the file on a command line, and never stored: reading a record or a
model runs no code.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from reweigh.checks import nearest
from reweigh.errors import DataError
from reweigh.lab.data.source.text import read_text
from reweigh.lab.nets.net import Net
from reweigh.lab.spec import Run, own_names, parse
from reweigh.weightings import FromCallable

_KINDS = ("weighting", "loss", "method", "net")
_MODULES: dict[str, ModuleType] = {}
"""Path of an executed file -> its module; a later run that names the same file replaces it."""


def code_hash(texts: Mapping[str, str]) -> str:
    """Return the sha256 of the text of one file, or of the digests of several."""
    digests = [hashlib.sha256(texts[path].encode()).hexdigest() for path in sorted(texts)]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def files_of(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths of the files that the fields of a run name.

    >>> files_of({"net": "my.py:Net", "weighting": "my.py:curve + other.py:Bump(2)", "lr": 0.1})
    ('my.py', 'other.py')
    """
    names = [name for kind in _KINDS if fields.get(kind) is not None for name in own_names(str(fields[kind]))]
    return tuple(sorted({name.rpartition(":")[0] for name in names}))


def read_code(paths: tuple[str, ...]) -> dict[str, str]:
    """Return path -> text of these files."""
    return {path: read_text(Path(path)) for path in paths}


def code_of(run: Run) -> dict[str, str]:
    """Return path -> text of the files that a run names; raise DataError if they have changed since it began."""
    paths = files_of(run.to_mapping())
    texts = read_code(paths)
    if texts:
        _check_hash(texts, run, f"{', '.join(paths)}: has changed")
    return texts


def load_code(run: Run, texts: Mapping[str, str] | None = None) -> None:
    """Execute the files that a run names, or their recorded `texts`, if the run has `own_code`."""
    paths = files_of(run.to_mapping())
    if not paths:
        return
    if not run.own_code:
        raise ValueError(
            f"the run needs the code in {', '.join(paths)}, which it would execute; read it, then add --own-code"
        )
    if texts is None:
        texts = code_of(run)
    else:
        _check_hash(texts, run, "the recorded code was changed")
    for path, text in texts.items():
        module = ModuleType(f"own_{hashlib.sha256(text.encode()).hexdigest()[:12]}")
        module.__file__ = path
        sys.modules[module.__name__] = module  # dataclasses look it up
        try:
            exec(compile(text, path, "exec"), module.__dict__)
        except Exception as error:
            raise ValueError(f"{path}: {type(error).__name__}: {error}") from error
        _MODULES[path] = module


def own_class(kind: str, name: str) -> Callable[..., Any]:
    """Return what an expression calls to make the own weighting, loss or method of that name.

    A weighting is a `Weighting`, or a function of p, or of p and q, and parameters; it is treated as a density. A loss
    is a module, or a function of logits and target and parameters, which returns a loss per row or their mean. A method
    is a class as in `reweigh.lab.methods`.
    """
    found = _find(kind, name)
    if inspect.isclass(found):
        return found
    if kind == "method":
        raise ValueError(f"{name} is a function; a method is a class, as in reweigh.lab.methods")
    parameters = list(inspect.signature(found).parameters.values())
    taken = 2 if kind == "loss" else 1 + (len(parameters) > 1 and parameters[1].name == "q")

    def make(**values: Any) -> Any:
        return _FunctionLoss(partial(found, **values)) if kind == "loss" else FromCallable(_Curve(found, taken, values))

    make.__signature__ = inspect.Signature(parameters[taken:])  # type: ignore[attr-defined]  # mypy lacks it
    return make


def own_net(
    name: str, num_classes: int, shape: tuple[int, ...], generator: torch.Generator, dropout: float = 0.0
) -> Net:
    """Build the own net of that name for inputs of a shape, (C, H, W) or (F,).

    The class or function is called with those of `num_classes` and `shape` that it takes, and the arguments of the
    expression. Its result is a `Net`, or any module with one last linear layer of `num_classes` outputs. Its initial
    values are drawn from torch's random state, which is seeded by `generator` meanwhile.
    """
    expression = parse(name)
    make = _find("net", expression.name)
    accepted = inspect.signature(make).parameters
    values = dict(expression.bind([key for key in accepted if key not in ("num_classes", "shape")]).kwargs)
    supplied = {key: value for key, value in (("num_classes", num_classes), ("shape", shape)) if key in accepted}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        try:
            net = make(**supplied, **values)
        except TypeError as error:
            raise ValueError(f"net {name}: {error}") from error
    if isinstance(net, Net):
        return net
    if not isinstance(net, nn.Module):
        raise ValueError(f"net {name} is a {type(net).__name__}; expected a torch.nn.Module")
    return OwnNet(net, num_classes, name, dropout)


class OwnNet(Net):
    """Any module whose logits come from one linear layer, which becomes the classifier."""

    def __init__(self, body: nn.Module, num_classes: int, name: str, dropout: float) -> None:
        super().__init__(dropout)
        linear = [(path, each) for path, each in body.named_modules() if isinstance(each, nn.Linear)]
        if not linear or linear[-1][1].out_features != num_classes or not linear[-1][0]:
            raise ValueError(
                f"net {name}: its last linear layer must be a part of it with {num_classes} outputs, one for each "
                "class, and return the logits"
            )
        path, self.fc = linear[-1]
        body.set_submodule(path, nn.Identity())
        self.body = body

    def features(self, x: Tensor) -> Tensor:
        """(N, F): what the classifier reads."""
        out: Tensor = self.body(x)
        return out


class _FunctionLoss(nn.Module):
    """A function of logits and target as a module."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return self.function(logits.float(), target).mean()


class _Curve:
    """A function of p, or of p and q, with its parameters set."""

    def __init__(self, function: Callable[..., Any], taken: int, values: Mapping[str, Any]) -> None:
        self.function, self.values = function, dict(values)
        self.__signature__ = inspect.Signature(list(inspect.signature(function).parameters.values())[:taken])

    def __call__(self, *p: Tensor) -> Any:
        return self.function(*p, **self.values)

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", "curve")


def _find(kind: str, name: str) -> Callable[..., Any]:
    path, _, attribute = name.rpartition(":")
    module = _MODULES.get(path)
    if module is None:
        raise ValueError(
            f"{kind} {name} is own code, which was not executed; add --own-code to train, resume or suspects"
        )
    found: Any = getattr(module, attribute, None)
    if not callable(found):
        names = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
        raise ValueError(f"{path} has no function or class {attribute!r}; {nearest(attribute, names)}")
    make: Callable[..., Any] = found
    return make


def _check_hash(texts: Mapping[str, str], run: Run, problem: str) -> None:
    found = code_hash(texts)
    if run.code_hash is None or not found.startswith(run.code_hash):
        raise DataError(f"{problem}: its sha256 is {found[:12]}..., but the run requires {str(run.code_hash)[:12]}")
