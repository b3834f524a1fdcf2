"""What is to be known before a result is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMED = 5  # classes; the others are counted


def caveat(result: Mapping[str, Any]) -> str:
    """The iteration by which training diverged, or else the classes that the net stopped predicting; empty if neither.

    >>> caveat({"diverged": 20}), caveat({"diverged": None})
    ('training diverged by iteration 20', '')
    >>> caveat({"collapsed_classes": ["cat", "dog"]})
    '2 collapsed classes: cat, dog'
    """
    if result.get("diverged") is not None:
        return f"training diverged by iteration {result['diverged']}"
    classes = result.get("collapsed_classes") or []
    if not classes:
        return ""
    more = f" and {len(classes) - NAMED} more" if len(classes) > NAMED else ""
    return f"{len(classes)} collapsed {'class' if len(classes) == 1 else 'classes'}: {', '.join(classes[:NAMED])}{more}"
