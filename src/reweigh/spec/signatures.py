"""The parameters of the weightings, by name, so that DM(0.5, 8) and DM(lam=0.5, beta=8) are one run without torch.

A test holds this table equal to the classes themselves.
"""

from __future__ import annotations

from reweigh.spec.expression import Expression, Value

PARAMETERS: dict[str, tuple[str, ...]] = {
    "DM": ("lam", "beta"),
    "Normal": ("psi", "beta"),
    "Exponential": ("beta",),
    "Beta": ("alpha", "eta"),
    "Uniform": (),
    "IMAE": ("T",),
    "CCE": (),
    "MAE": (),
    "MSE": (),
    "GCE": ("q",),
    "TruncatedGCE": ("q", "k"),
    "SL": ("alpha", "b"),
    "Focal": ("gamma", "detach"),
    "PHuber": ("tau",),
    "AGCE": ("a", "q"),
    "AUL": ("a", "q"),
    "AEL": ("a",),
    "ForwardSymmetric": ("rate", "num_classes"),
    "Curve": ("points",),
    "Tapered": ("weighting", "taper"),
}


def bound(expression: Expression) -> Expression:
    """The expression with the arguments of every known weighting under their names.

    >>> from reweigh.spec import parse
    >>> print(bound(parse("Tapered(DM(1, 16), 5e-7) + CCE")))
    Tapered(weighting=DM(lam=1, beta=16), taper=5e-07) + CCE
    """

    def inside(value: Value) -> Value:
        if isinstance(value, tuple):
            return tuple(inside(item) for item in value)
        return bound(value) if isinstance(value, Expression) else value

    named = expression.bind(PARAMETERS[expression.name]) if expression.name in PARAMETERS else expression
    kwargs = tuple((key, inside(value)) for key, value in named.kwargs)
    return Expression(named.name, tuple(inside(value) for value in named.args), kwargs)
