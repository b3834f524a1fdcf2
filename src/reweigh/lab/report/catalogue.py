"""The weightings of the explorer: which knobs each has, and where they start."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

from reweigh.lab.objectives.weightings import NAMES, weighting_from
from reweigh.lab.spec import Expression, parse


class Knob(NamedTuple):
    """One parameter: the range and step of its slider, where it starts, and the least value that is allowed."""

    name: str
    low: float
    high: float
    step: float
    start: float
    least: float | None = None


CURVE_AT = (0.0, 0.25, 0.5, 0.75, 1.0)

# `Tapered` is the taper slider; `Curve` has its height at five places; `ForwardSymmetric` takes C from its own slider.
KNOBS: dict[str, tuple[Knob, ...]] = {
    "DM": (Knob("lam", 0, 4, 0.05, 0.5, 0), Knob("beta", -8, 32, 0.5, 8)),
    "Normal": (Knob("psi", 0, 1, 0.01, 0.5, 0), Knob("beta", -8, 32, 0.5, 8)),
    "Exponential": (Knob("beta", -8, 16, 0.1, 2),),
    "Beta": (Knob("alpha", 0, 8, 0.1, 2, 0), Knob("eta", 0, 8, 0.1, 2, 0)),
    "Uniform": (),
    "IMAE": (Knob("T", -8, 32, 0.5, 8),),
    "CCE": (),
    "MAE": (),
    "MSE": (),
    "GCE": (Knob("q", 0, 4, 0.05, 0.7, 0),),
    "TruncatedGCE": (Knob("q", 0, 4, 0.05, 0.7, 0), Knob("k", 0, 0.95, 0.05, 0.5, 0)),
    "SL": (Knob("alpha", 0, 10, 0.1, 0.1, 0), Knob("b", 0, 20, 0.01, 9.21, 0)),
    "Focal": (Knob("gamma", 0, 8, 0.1, 2, 0),),
    "PHuber": (Knob("tau", 1, 40, 0.5, 2, 1),),
    "AGCE": (Knob("a", 0, 10, 0.1, 0.6, 0), Knob("q", 0, 6, 0.1, 0.6, 0)),
    "AUL": (Knob("a", 1, 10, 0.1, 5.5, 1), Knob("q", 0, 10, 0.1, 3, 0)),
    "AEL": (Knob("a", 0.1, 10, 0.1, 2.5, 1e-6),),
    "ForwardSymmetric": (Knob("rate", 0, 0.9, 0.01, 0.4, 0),),
    "Curve": tuple(
        Knob(f"w({at:g})", 0, 4, 0.05, start, 0) for at, start in zip(CURVE_AT, (0.5, 2, 1.5, 1, 0), strict=True)
    ),
}


def catalogue() -> list[dict[str, Any]]:
    """Every weighting of the explorer: name, kind, what its docstring says first, and knobs."""
    return [
        {
            "name": name,
            # a density's kind is a property, which the class itself does not resolve
            "kind": "loss" if vars(NAMES[name]).get("kind") == "loss" else "density",
            "about": (inspect.getdoc(NAMES[name]) or "").partition("\n")[0],
            "knobs": [knob._asdict() for knob in knobs],
        }
        for name, knobs in KNOBS.items()
    ]


def start(text: str) -> dict[str, Any]:
    """Where the explorer begins, from an expression such as "DM(0.5, 12)".

    >>> start("GCE(0.5)")
    {'name': 'GCE', 'values': {'q': 0.5}}
    """
    expression = parse(text)
    weighting_from(expression)  # refuses what is wrong with it
    if expression.name not in KNOBS or expression.name == "Curve":
        shown = ", ".join(name for name in KNOBS if name != "Curve")
        raise ValueError(f"{text}: the explorer starts from one of {shown}")
    knobs = {knob.name: knob.start for knob in KNOBS[expression.name]}
    names = [*knobs, "num_classes"] if expression.name == "ForwardSymmetric" else list(knobs)
    given = _numbers(expression, names)
    state: dict[str, Any] = {"name": expression.name, "values": {name: given.get(name, knobs[name]) for name in knobs}}
    return state | ({"classes": given["num_classes"]} if "num_classes" in given else {})


def _numbers(expression: Expression, names: list[str]) -> dict[str, float]:
    return {name: value for name, value in expression.bind(names).kwargs if isinstance(value, int | float)}
