"""The weightings of the explorer page, with a slider for each of their numbers.

Names, parameters and defaults are read from the classes. This file adds what only the page needs: the ranges of the
sliders. The explorer shows the weightings whose formula is in `assets/weightings.js`, and leaves out all others.
"""

from __future__ import annotations

import inspect
import re
from importlib.resources import files
from typing import Any, NamedTuple, get_args, get_type_hints

from reweigh.functional import PUBLISHED_TAPER
from reweigh.lab.spec import parse
from reweigh.lab.weightings import WEIGHTINGS, parameters_of, weighting_from
from reweigh.weightings import Curve, Weighting


class Slider(NamedTuple):
    """Range and step of a slider, its start where the parameter has no default, and the least allowed value."""

    low: float
    high: float
    step: float
    start: float = 0.0
    least: float | None = None


SLIDERS = {
    "lam": Slider(0, 4, 0.05, 0.5, 0),
    "beta": Slider(-8, 32, 0.5, 8),
    "psi": Slider(0, 1, 0.01, 0.5, 0),
    "alpha": Slider(0, 8, 0.1, 2, 0),
    "eta": Slider(0, 8, 0.1, 2, 0),
    "T": Slider(-8, 32, 0.5),
    "q": Slider(0, 4, 0.05, least=0),
    "k": Slider(0, 0.95, 0.05, least=0),
    "b": Slider(0, 20, 0.01, least=0),
    "gamma": Slider(0, 8, 0.1, least=0),
    "tau": Slider(1, 40, 0.5, least=1),
    "a": Slider(0, 10, 0.1, least=0),
    "rate": Slider(0, 0.9, 0.01, 0.4, 0),
    "Exponential.beta": Slider(-8, 16, 0.1, 2),
    "SL.alpha": Slider(0, 10, 0.1, least=0),
    "AGCE.q": Slider(0, 6, 0.1, least=0),
    "AUL.a": Slider(1, 10, 0.1, least=1),
    "AUL.q": Slider(0, 10, 0.1, least=0),
    "AEL.a": Slider(0.1, 10, 0.1, least=1e-6),
}
"""Parameter, or weighting.parameter -> slider."""

_OTHER = Slider(0, 8, 0.1, 1)
_CLASSES = "num_classes"
_CURVE = {0.0: 0.5, 0.25: 2.0, 0.5: 1.5, 0.75: 1.0, 1.0: 0.0}
"""Points of a `Curve`: its sliders are their heights."""


def explorer(text: str) -> dict[str, Any]:
    """Return the data of the explorer, with the weighting of an expression such as "DM(0.5, 12)" as the first."""
    return {
        "catalogue": catalogue(),
        "start": start(text),
        "compare": start("MAE"),
        "references": [start("CCE"), start("GCE")],
    }


def catalogue() -> list[dict[str, Any]]:
    """Return every weighting of the explorer: name, taper by default, first docstring line, sliders.

    `classes` is the name of the parameter that is the number of classes, and `points` are the p of a curve.
    """
    return [
        {
            "name": cls.__name__,
            # the kind of a density is a property, which the class itself does not resolve
            "taper": 0 if vars(cls).get("kind") == "loss" else PUBLISHED_TAPER,
            "about": (inspect.getdoc(cls) or "").partition("\n")[0],
            "knobs": sliders_of(cls),
            "classes": _CLASSES if _CLASSES in parameters_of(cls) else None,
            "points": list(_CURVE) if cls is Curve else None,
        }
        for cls in _drawn()
    ]


def sliders_of(cls: type[Weighting]) -> list[dict[str, Any]]:
    """Return a slider for every number of a weighting.

    >>> from reweigh import DM
    >>> [slider["name"] for slider in sliders_of(DM)]
    ['lam', 'beta']
    """
    if cls is Curve:
        return [_named(f"w({p:g})", Slider(0, 4, 0.05, w, 0)) for p, w in _CURVE.items()]
    hints = get_type_hints(cls)
    sliders = []
    for name, default in parameters_of(cls).items():
        if float not in (hints[name], *get_args(hints[name])):
            continue  # the number of classes has a slider for all weightings; a flag or another weighting has none
        slider = SLIDERS.get(f"{cls.__name__}.{name}", SLIDERS.get(name, _OTHER))
        sliders.append(_named(name, slider._replace(start=default) if isinstance(default, int | float) else slider))
    return sliders


def start(text: str) -> dict[str, Any]:
    """Return the initial state of the explorer from an expression such as "DM(0.5, 12)".

    >>> start("GCE(0.5)")
    {'name': 'GCE', 'values': {'q': 0.5}}
    """
    expression = parse(text)
    weighting_from(expression)  # raises if anything is wrong with it
    drawn = {cls.__name__: cls for cls in _drawn() if cls is not Curve}
    if expression.name not in drawn:
        raise ValueError(f"{text}: the explorer starts from one of {', '.join(drawn)}")
    cls = drawn[expression.name]
    sliders = {slider["name"]: slider["start"] for slider in sliders_of(cls)}
    names = [name for name in parameters_of(cls) if name in sliders or name == _CLASSES]
    values = {name: value for name, value in expression.bind(names).kwargs if isinstance(value, int | float)}
    state: dict[str, Any] = {
        "name": expression.name,
        "values": {name: values.get(name, start) for name, start in sliders.items()},
    }
    return state | ({"classes": values[_CLASSES]} if _CLASSES in values else {})


def _drawn() -> list[type[Weighting]]:
    """Return the weightings that have a formula in JavaScript."""
    script = (files("reweigh.lab.report") / "assets" / "weightings.js").read_text("utf-8")
    formulas = set(re.findall(r"^  (\w+): \(", script, re.MULTILINE))
    return [cls for cls in WEIGHTINGS if cls.__name__ in formulas]


def _named(name: str, slider: Slider) -> dict[str, Any]:
    return {"name": name, **slider._asdict()}
