"""The grammar: expressions round-trip, and other Python is refused."""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.lab.spec import Expression, ExpressionError, parse
from reweigh.lab.spec.expression import DEEPEST, LONGEST, canonical

NAMES = st.sampled_from(["DM", "lam", "beta", "CCE", "a_b_9", "x" * 64, "Z"])
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["C", "Z"]) | st.just(" "), max_size=12)
LEAVES = NUMBERS | st.booleans() | st.none() | TEXTS


def calls(values: st.SearchStrategy[object]) -> st.SearchStrategy[Expression]:
    kwargs = st.dictionaries(NAMES, values, max_size=2).map(lambda named: tuple(named.items()))
    return st.builds(Expression, NAMES, st.lists(values, max_size=3).map(tuple), kwargs)


def compound(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    call = calls(values)
    sums = st.builds(lambda *terms: Expression("+", terms), call, call)
    products = st.builds(lambda *factors: Expression("*", factors), call | sums, NUMBERS, call)
    return call | sums | products | st.lists(values, max_size=3)


EXPRESSIONS = calls(st.recursive(LEAVES, compound, max_leaves=6))


@given(EXPRESSIONS)
def test_str_and_parse_round_trip(expression: Expression) -> None:
    again = parse(str(expression))
    assert again == expression
    assert str(again) == str(expression)
    assert parse(expression.key) == expression
    assert hash(again) == hash(expression)


@given(st.text(max_size=40))
def test_any_text_parses_or_raises_expression_error(text: str) -> None:
    try:
        expression = parse(text)
    except ExpressionError:
        return
    assert parse(str(expression)) == expression


@given(st.text(alphabet="DMCE()[]{}=+-*/.,:;'\"\\_@!<>~^&|%#$ \t\n019jxelambdforin", max_size=60))
def test_any_python_like_text_parses_or_raises_expression_error(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("DM(lam=0.5, beta=8)", "DM(lam=0.5, beta=8)"),
        ("DM( .50,8.0 )", "DM(0.5, 8)"),
        ("GCE(0.7)", "GCE(0.7)"),
        ("CCE()", "CCE"),
        ("Tapered(DM(1, 16), 5e-7)", "Tapered(DM(1, 16), 5e-07)"),
        ("DM(0.5, linear(2, 16, until=0.5))", "DM(0.5, linear(2, 16, until=0.5))"),
        ("CCE + MAE*0.5", "CCE + 0.5 * MAE"),
        ("CCE + (MAE + GCE)", "CCE + MAE + GCE"),
        ("MAE * (CCE + GCE) * 2", "2 * MAE * (CCE + GCE)"),
        ("Curve(((0, 1), (1, 0)))", "Curve([[0, 1], [1, 0]])"),
        ("DM(-0.0, -1e3, 1_000)", "DM(0, -1000, 1000)"),
        ('F(True, None, "it\'s", 1e300)', 'F(True, None, "it\'s", 1e+300)'),
        ("given(file='labels.npy', key='worse_label')", "given(file='labels.npy', key='worse_label')"),
    ],
)
def test_canonical_form(text: str, written: str) -> None:
    assert str(parse(text)) == written
    assert str(parse(written)) == written


def test_equality() -> None:
    assert parse("DM(lam=0.5, beta=8)") == parse("DM(beta=8.0, lam=.5)")
    assert parse("DM(1)") != parse("DM(True)")  # although 1 == True
    assert parse("DM('1')") != parse("DM(1)")
    assert parse("CCE") != "CCE"
    assert len({parse("DM(8)"), parse("DM(8.0)"), parse("DM(9)")}) == 2


@pytest.mark.parametrize(
    ("text", "column", "part"),
    [
        ("DM(x.y)", 4, "'x.y'"),
        ("DM(0.5, [a for a in b])", 9, "for"),
        ("DM(lambda: 1)", 4, "lambda"),
        ("__import__('os')", 1, "__import__"),
        ("DM(a__b=1)", 1, "a__b"),
        ("_DM", 1, "_DM"),
        ("DM(**x)", 4, "**"),
        ("DM(*x)", 4, "'*x'"),
        ("x[0]", 1, "x[0]"),
        ("DM(1 + 2)", 4, "joins expressions"),
        ("CCE + 1", 1, "terms"),
        ("CCE - MAE", 1, "CCE - MAE"),
        ("CCE / 2", 1, "CCE / 2"),
        ("-CCE", 1, "-CCE"),
        ("DM(-True)", 4, "-True"),
        ("DM('a' * CCE)", 4, "joins"),
        ("DM({1: 2})", 4, "{1: 2}"),
        ("DM({1})", 4, "{1}"),
        ("DM(1j)", 4, "1j"),
        ("DM(b'x')", 4, "b'x'"),
        ("DM(...)", 4, "..."),
        ("DM(f'{x}')", 4, "f'{x}'"),
        ("DM(x := 1)", 4, ":="),
        ("a if b else c", 1, "if"),
        ("a and b", 1, "and"),
        ("a < b", 1, "<"),
        ("DM(1e999)", 4, "finite"),
        (f"DM({2**53 + 1})", 4, "2**53"),
        ("DM(" + "9" * 4000 + ")", 4, "2**53"),
        ("DM('" + "x" * 300 + "')", 4, "at most 256 characters; 'xxx"),
        ("DM('\\n')", 4, "printable"),
        ("DM('\\d')", 4, "escape"),
        ("DM(1, a=2, a=3)", 1, "a twice"),
        ("DM(1,, 2)", 6, "syntax"),
        ("DM(é.x)", 4, "é.x"),
        ("DM('é', b.x)", 9, "b.x"),
        ("DM(1)(2)", 1, "DM(1)(2)"),
    ],
)
def test_other_python_is_refused_with_its_column(text: str, column: int, part: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert f"column {column}:" in str(caught.value)
    assert part in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "x" * (LONGEST + 1),
        "a+" * (LONGEST // 2 - 1) + "a",  # can be read, but not once it is written out
        "a\nb",
        "a\0b",
        "\ud800",
        "1",
        "'DM'",
        "[DM]",
        "None",
        "(" * 3000,
        "(" * 2000 + ")" * 2000,
        "-" * 4000 + "1",
        "not " * 1000 + "a",
        "DM(" * 1300,
        "F(" * (DEEPEST + 2) + ")" * (DEEPEST + 2),
        "[" * 90 + "]" * 90,
        "x" * 65,
    ],
)
def test_sizes_and_depths_have_limits(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text)


def test_nesting_up_to_the_limit_is_parsed() -> None:
    text = "F(" * (DEEPEST - 1) + "1" + ")" * (DEEPEST - 1)
    assert str(parse(text)) == text
    assert len(parse("+".join(["a"] * 900)).args) == 900


def test_only_strings_are_parsed() -> None:
    with pytest.raises(TypeError, match="an expression is a string"):
        parse(3)  # type: ignore[arg-type]  # what a caller without types may do


@pytest.mark.parametrize("value", [math.nan, math.inf, 2**60, "\n", "x" * 1000])
def test_values_out_of_range_cannot_be_built_either(value: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        canonical(value)


@pytest.mark.parametrize("name", ["", "1a", "lambda", "True", "a b", "__x", "+-"])
def test_names_are_checked_when_built(name: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        Expression(name)


def test_values_of_other_types_cannot_be_built() -> None:
    with pytest.raises(TypeError, match="is not allowed in an expression"):
        Expression("DM", (object(),))  # type: ignore[arg-type]  # the point of the test


def test_bind_names_the_arguments() -> None:
    assert str(parse("DM(0.5, beta=8)").bind(["lam", "beta"])) == "DM(lam=0.5, beta=8)"
    assert str(parse("DM(beta=8, lam=1)").bind(["lam", "beta"])) == "DM(lam=1, beta=8)"
    with pytest.raises(ValueError, match="did you mean 'beta'"):
        parse("DM(bta=8)").bind(["lam", "beta"])
    with pytest.raises(ValueError, match="takes 2 arguments"):
        parse("DM(1, 2, 3)").bind(["lam", "beta"])
    with pytest.raises(ValueError, match="lam twice"):
        parse("DM(1, lam=2)").bind(["lam", "beta"])


def test_spec_needs_neither_torch_nor_numpy() -> None:
    script = "import sys, reweigh.lab.spec; sys.exit(any(m in sys.modules for m in ('torch', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
