"""A complete training bench: data, nets, methods, recorded and resumable runs, searches, reports and a command line.

It imports the library; the library never imports it. What it needs beyond torch and numpy is `pip install
'reweigh[lab]'`. Names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_MODULE_OF = {
    "Run": "reweigh.lab.spec",
    "parse": "reweigh.lab.spec",
    "execute": "reweigh.lab.run",
    "load_model": "reweigh.lab.train.model",
}

__all__ = sorted(_MODULE_OF)

if TYPE_CHECKING:
    from reweigh.lab.run.execute import execute as execute
    from reweigh.lab.spec import Run as Run
    from reweigh.lab.spec import parse as parse
    from reweigh.lab.train.model import load_model as load_model


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'reweigh.lab' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
