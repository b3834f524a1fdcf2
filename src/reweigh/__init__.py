"""reweigh: design the derivative, not the loss.

    criterion = reweigh.Criterion(reweigh.DM(lam=0.5, beta=8))    # replaces nn.CrossEntropyLoss()

Names are imported on first use (PEP 562): `import reweigh` alone does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_NAMES_IN = {
    "reweigh.weightings": (
        "AEL AGCE AUL CCE DM GCE IMAE MAE MSE SL Beta Curve Exponential Focal ForwardSymmetric Normal PHuber PerClass "
        "Tapered TruncatedGCE Uniform Weighting"
    ),
    "reweigh.auto": "Auto Indexed",
    "reweigh.criterion": "BinaryCriterion Criterion batch_stats",
    "reweigh.linear": "LinearCriterion",
    "reweigh.emphasis": "emphasis_of from_loss",
    "reweigh.language": "advise",
    "reweigh.labels": "Recorder find_suspects",
}
_MODULE_OF = {name: module for module, names in _NAMES_IN.items() for name in names.split()}

__all__ = sorted([*_MODULE_OF, "__version__"])

if TYPE_CHECKING:
    from reweigh.auto import Auto as Auto
    from reweigh.auto import Indexed as Indexed
    from reweigh.criterion import BinaryCriterion as BinaryCriterion
    from reweigh.criterion import Criterion as Criterion
    from reweigh.criterion import batch_stats as batch_stats
    from reweigh.emphasis import emphasis_of as emphasis_of
    from reweigh.emphasis import from_loss as from_loss
    from reweigh.labels import Recorder as Recorder
    from reweigh.labels import find_suspects as find_suspects
    from reweigh.language import advise as advise
    from reweigh.linear import LinearCriterion as LinearCriterion
    from reweigh.weightings import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'reweigh' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value  # so that the next access finds it without __getattr__
    return value


def __dir__() -> list[str]:
    return __all__
