"""Expressions become weightings, and the table of their parameters without torch is true."""

from __future__ import annotations

from dataclasses import MISSING, fields

import pytest

from reweigh import CCE, DM, GCE, MAE, Curve, Tapered, Weighting
from reweigh.lab.objectives.weightings import NAMES, weighting_from
from reweigh.lab.spec import parse
from reweigh.lab.spec.signatures import DEFAULTS, PARAMETERS


def test_the_table_of_parameters_is_that_of_the_classes() -> None:
    assert {name: tuple(field.name for field in fields(kind)) for name, kind in NAMES.items()} == PARAMETERS  # type: ignore[arg-type]
    defaults = {
        name: {f.name: f.default for f in fields(kind) if f.default is not MISSING} for name, kind in NAMES.items()
    }  # type: ignore[arg-type]
    assert {name: found for name, found in defaults.items() if found} == DEFAULTS
    assert all(value is False for found in DEFAULTS.values() for value in found.values() if isinstance(value, bool)), (
        "`bound` leaves out what is off"
    )


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


def test_the_name_of_a_weighting_reads_back() -> None:
    for weighting in (DM(0.5, 8), CCE() + 9.21 * MAE(), 2 * (CCE() + MAE()), Tapered(DM(1, 16), 5e-7)):
        assert weighting_from(parse(repr(weighting))) == weighting


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("DMM(1, 2)", "no weighting is called 'DMM'; did you mean 'DM'"),
        ("DM(1, 2, 3)", "DM takes 2 arguments"),
        ("DM(1)", "missing"),
        ("DM(lamb=1, beta=2)", "no argument 'lamb'; did you mean 'lam'"),
        ("DM(-1, 2)", "lam must be a number in"),
        ("Curve([[0, 1]])", "at least two"),
    ],
)
def test_wrong_expressions_are_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        weighting_from(parse(text))
