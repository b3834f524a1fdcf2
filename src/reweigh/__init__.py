"""reweigh: design the derivative, not the loss.

    criterion = reweigh.Criterion(reweigh.DM(lam=0.5, beta=8))    # in place of nn.CrossEntropyLoss()

Names are imported on first use (PEP 562): `import reweigh` alone does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "reweigh.weighting": (
        "AEL AGCE AUL CCE DM GCE IMAE MAE MSE SL Beta Curve Exponential Focal ForwardSymmetric Normal PHuber PerClass "
        "Product Scaled Sum Tapered TruncatedGCE Uniform Weighting"
    ),
    "reweigh.density": (
        "Emphasis emphasis_of emphasis_variance from_loss integral is_bounded potential potential_range share "
        "symmetry_gap unit"
    ),
    "reweigh.direction": "margin unit_direction",
    "reweigh.criterion": "BinaryCriterion Criterion LinearCriterion Stats inspect",
    "reweigh.spec": "Run authors parse text",
    "reweigh.run": "execute",
    "reweigh.recommendation": "Recommendation recommend",
    "reweigh.suspects": "find_suspects",
    "reweigh.train.model": "load_model",
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names.split()}
_SUBMODULES = ("functional",)

__all__ = sorted([*_MODULE_OF, *_SUBMODULES, "__version__"])

if TYPE_CHECKING:
    from reweigh import functional as functional
    from reweigh.criterion import BinaryCriterion as BinaryCriterion
    from reweigh.criterion import Criterion as Criterion
    from reweigh.criterion import LinearCriterion as LinearCriterion
    from reweigh.criterion import Stats as Stats
    from reweigh.criterion import inspect as inspect
    from reweigh.density import *  # noqa: F403
    from reweigh.direction import margin as margin
    from reweigh.direction import unit_direction as unit_direction
    from reweigh.recommendation import Recommendation as Recommendation
    from reweigh.recommendation import recommend as recommend
    from reweigh.run.execute import execute as execute
    from reweigh.spec import Run as Run
    from reweigh.spec import authors as authors
    from reweigh.spec import parse as parse
    from reweigh.spec import text as text
    from reweigh.suspects import find_suspects as find_suspects
    from reweigh.train.model import load_model as load_model
    from reweigh.weighting import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"reweigh.{name}")
    if name in _MODULE_OF:
        value = getattr(import_module(_MODULE_OF[name]), name)
        globals()[name] = value  # found once, found for good
        return value
    raise AttributeError(f"module 'reweigh' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
