"""Weightings from expressions."""

from __future__ import annotations

import pytest

from reweigh import CCE, DM, GCE, MAE, Curve, Tapered, Weighting
from reweigh.lab.spec import parse
from reweigh.lab.weightings import weighting_from


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DM(lam=0.5, beta=8)", DM(0.5, 8)),
        ("CCE", CCE()),
        ("GCE", GCE(0.7)),
        ("Tapered(DM(1, 16), 5e-7)", Tapered(DM(1, 16), 5e-7)),
        ("CCE + 0.5 * MAE", CCE() + 0.5 * MAE()),
        ("DM(1, 2) * MAE", DM(1, 2) * MAE()),
        ("Curve([[0, 1], [0.5, 2], [1, 0]])", Curve(((0, 1), (0.5, 2), (1, 0)))),
    ],
)
def test_expressions(text: str, expected: Weighting) -> None:
    assert weighting_from(parse(text)) == expected


def test_repr_parses_to_the_weighting() -> None:
    for weighting in (DM(0.5, 8), CCE() + 9.21 * MAE(), 2 * (CCE() + MAE()), Tapered(DM(1, 16), 5e-7)):
        assert weighting_from(parse(repr(weighting))) == weighting


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DMM(1, 2)", "no weighting is named 'DMM'; did you mean 'DM'"),
        ("DM(1, 2, 3)", "DM takes 2 arguments"),
        ("DM(1)", "DM needs beta"),
        ("DM(lamb=1, beta=2)", "no argument 'lamb'; did you mean 'lam'"),
        ("DM(-1, 2)", "lam must be a number in"),
        ("Curve([[0, 1]])", "at least two"),
    ],
)
def test_wrong_expressions_raise(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        weighting_from(parse(text))
