"""The grammar of weightings, losses, methods, noise and schedules: `DM(lam=0.5, beta=8)`.

    expression = NAME | NAME(value, ..., key=value, ...) | sum | product
    sum        = expression + expression + ...
    product    = factor * factor * ...        each a number or an expression, at least one an expression
    NAME       = a name, or that of a function or class in a file: my.py:curve
    value      = number | 'text' | True | False | None | [value, ...] | (value, ...) | expression

The text is parsed with `ast` and never evaluated; everything else of Python (attributes, indices, comprehensions,
lambdas, sums of numbers, names with two underscores) is refused with its column.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from keyword import iskeyword
from typing import TypeAlias

from reweigh.checks import nearest

Value: TypeAlias = "bool | int | float | str | tuple[Value, ...] | Expression | None"

LONGEST = 4096  # characters of an expression
LONGEST_STRING = 256
DEEPEST = 16  # levels of brackets
_EXACT = 2**53  # up to here floats represent integers exactly
_ESCAPE = re.compile(r"""\\(?:[\\'"abfnrtvxuUN]|[0-3][0-7]{0,2}|[4-7][0-7]?(?![0-7]))""")
_OWN = re.compile(r"(?<![\w./~-])([\w./~-]+\.py:[A-Za-z_]\w*)")
"""A name in a user's file, as in my.py:curve."""
_NAME = re.compile(r"(?!.*__)[A-Za-z][A-Za-z0-9_]{0,63}")
_ALLOWED = "allowed are NAME(value, key=value), numbers, 'text', True, False, None, [lists], + and *"


class ExpressionError(ValueError):
    """Raised for a text outside the grammar; the message has the text, the column and what is allowed."""


@dataclass(frozen=True, eq=False, repr=False)
class Expression:
    """A name with arguments; sums and products are named "+" and "*".

    Numbers are canonical (8.0 is 8), sums and products are flat, and the numbers of a product come first.
    `parse(str(expression))` gives the expression back. The order of keywords does not matter for equality.

    >>> parse("DM(lam=0.5, beta=8.0)") == parse("DM(beta = 8, lam = .5)")
    True
    >>> print(parse("CCE() + MAE*0.50"))
    CCE + 0.5 * MAE
    """

    name: str
    args: tuple[Value, ...] = ()
    kwargs: tuple[tuple[str, Value], ...] = ()

    def __post_init__(self) -> None:
        args = tuple(canonical(value) for value in self.args)
        kwargs = tuple((_checked_name(key), canonical(value)) for key, value in self.kwargs)
        keys = [key for key, _ in kwargs]
        for key in keys:
            if keys.count(key) > 1:
                raise ValueError(f"{self.name} has {key} twice")
        if self.name in ("+", "*"):
            args = tuple(_flat(self.name, args))
            _check_operands(self.name, args, kwargs)
            if self.name == "*":
                args = tuple(sorted(args, key=lambda factor: isinstance(factor, Expression)))
        elif not _OWN.fullmatch(self.name):
            _checked_name(self.name)
        object.__setattr__(self, "args", args)
        object.__setattr__(self, "kwargs", kwargs)

    @property
    def key(self) -> str:
        """The expression as text with the keywords in alphabetical order, which identifies it."""
        return _write(self, ordered=True)

    def bind(self, parameters: Sequence[str]) -> Expression:
        """Return the same call with all arguments as keywords, in the order of `parameters`.

        >>> print(parse("DM(0.5, beta=8)").bind(["lam", "beta"]))
        DM(lam=0.5, beta=8)
        """
        if len(self.args) > len(parameters):
            raise ValueError(f"{self}: {self.name} takes {len(parameters)} arguments ({', '.join(parameters)})")
        given = dict(zip(parameters, self.args, strict=False))
        for key, value in self.kwargs:
            if key not in parameters:
                raise ValueError(f"{self}: {self.name} has no argument {key!r}; {nearest(key, parameters)}")
            if key in given:
                raise ValueError(f"{self}: {self.name} has {key} twice")
            given[key] = value
        return Expression(self.name, (), tuple((key, given[key]) for key in parameters if key in given))

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Expression) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return _write(self, ordered=False)

    def __repr__(self) -> str:
        return f"parse({str(self)!r})"


@lru_cache(maxsize=1024)
def parse(text: str) -> Expression:
    """Parse an expression.

    >>> parse("Tapered(DM(1, 16), 5e-7)").args[1]
    5e-07
    >>> parse("DM(0.5, beta.real)")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    reweigh.lab.spec.expression.ExpressionError: expression 'DM(0.5, beta.real)', column 9: 'beta.real' is not ...
    """
    if not isinstance(text, str):
        raise TypeError(f"an expression is a string such as 'DM(0.5, 8)', not {text!r}")
    text = text.strip()
    if not text or len(text) > LONGEST:
        raise ExpressionError(f"an expression has 1 to {LONGEST} characters, this one has {len(text)}")
    if not text.isprintable():
        raise ExpressionError(f"expression {_shown(text)} is not one line of printable characters")
    own = own_names(text)
    for k, name in enumerate(own):
        text = re.sub(rf"(?<![\w./~-]){re.escape(name)}(?!\w)", f"own{k}_", text)
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        where = f"expression {_shown(text)}, column {error.offset or 1}"
        raise ExpressionError(f"{where}: {error.msg}; {_ALLOWED}") from None
    except (ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"expression {_shown(text)} is nested too deeply") from None
    value = _Reader(text, {f"own{k}_": name for k, name in enumerate(own)}).value(tree)
    if not isinstance(value, Expression):
        raise ExpressionError(f"expression {_shown(text)} is a plain value; it must be a name, as in 'DM(0.5, 8)'")
    if len(str(value)) > LONGEST:  # could be written, but not parsed again
        raise ExpressionError(f"expression {_shown(text)} has more than {LONGEST} characters when written out")
    return value


def own_names(text: str) -> tuple[str, ...]:
    """Return the names in users' files that an expression contains.

    >>> own_names("my.py:curve(2) + 0.5 * lib/other.py:Bump")
    ('my.py:curve', 'lib/other.py:Bump')
    """
    return tuple(dict.fromkeys(_OWN.findall(text)))


def canonical(value: object) -> Value:
    """Return a value in its canonical form: 8.0 as 8, lists as tuples; other types are refused.

    >>> canonical([1.0, 0.5, True])
    (1, 0.5, True)
    """
    if value is None or isinstance(value, bool | Expression):
        return value
    if isinstance(value, int) and abs(value) <= _EXACT:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return int(value) if value.is_integer() and abs(value) <= _EXACT else value
    if isinstance(value, int | float):
        raise ValueError("a number must be finite, and an integer at most 2**53")
    if isinstance(value, str):
        if len(value) > LONGEST_STRING or not value.isprintable():
            limit = f"a string must be printable and have at most {LONGEST_STRING} characters"
            raise ValueError(f"{limit}; {_shown(value)} has {len(value)}")
        return value
    if isinstance(value, list | tuple):
        return tuple(canonical(item) for item in value)
    raise TypeError(f"{value!r} is not allowed in an expression; {_ALLOWED}")


class _Reader:
    """Convert a syntax tree to a value; keeps the text for error messages."""

    def __init__(self, text: str, own: Mapping[str, str]) -> None:
        self.text, self.own = text, own

    def value(self, node: ast.expr, depth: int = 0) -> Value:
        if depth > DEEPEST:
            raise self.refusal(node, f"more than {DEEPEST} levels of brackets")
        try:
            return self._value(node, depth + 1)
        except ExpressionError:
            raise
        except ValueError as error:
            raise self.refusal(node, str(error)) from None

    def _value(self, node: ast.expr, depth: int) -> Value:
        match node:
            case ast.Constant(value=str() as value) if self.has_bad_escape(node):
                raise self.refusal(node, f"{value!r} has an invalid escape sequence; write \\\\ for a backslash")
            case ast.Constant(value=int() | float() | str() | None as value):
                return canonical(value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                if not isinstance(number, bool):
                    return canonical(-number)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return tuple(self.value(item, depth) for item in items)
            case ast.Name(id=name):
                return Expression(self.own.get(name, name))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                positional = tuple(self.value(item, depth) for item in args)
                return Expression(
                    self.own.get(name, name), positional, tuple(self.keyword(item, depth) for item in keywords)
                )
            case ast.BinOp(op=ast.Add() | ast.Mult() as op):
                operands = tuple(self.value(item, depth) for item in _chain(node, type(op)))
                return Expression("+" if isinstance(op, ast.Add) else "*", operands)
        source = ast.get_source_segment(self.text, node) or ""
        raise self.refusal(node, f"{_shown(source)} is not part of the grammar; {_ALLOWED}")

    def has_bad_escape(self, node: ast.expr) -> bool:
        """Return whether a text has an escape such as \\d, about which Python only warns."""
        source = ast.get_source_segment(self.text, node) or ""
        return source[0] not in "rR" and "\\" in _ESCAPE.sub("", source)

    def keyword(self, node: ast.keyword, depth: int) -> tuple[str, Value]:
        if node.arg is None:
            raise self.refusal(node, f"** is not part of the grammar; {_ALLOWED}")
        return node.arg, self.value(node.value, depth)

    def refusal(self, node: ast.expr | ast.keyword, why: str) -> ExpressionError:
        column = len(self.text.encode()[: node.col_offset].decode()) + 1  # ast counts bytes
        return ExpressionError(f"expression {_shown(self.text)}, column {column}: {why}")


def _chain(node: ast.expr, operator: type[ast.operator]) -> list[ast.expr]:
    """The operands of a + b + c in order, without recursion: Python nests them to the left."""
    operands = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, operator):
        operands.append(node.right)
        node = node.left
    return [node, *reversed(operands)]


def _flat(name: str, args: tuple[Value, ...]) -> Iterator[Value]:
    for arg in args:
        if isinstance(arg, Expression) and arg.name == name:
            yield from arg.args
        else:
            yield arg


def _check_operands(name: str, args: tuple[Value, ...], kwargs: tuple[tuple[str, Value], ...]) -> None:
    expressions = sum(isinstance(arg, Expression) for arg in args)
    numbers = sum(isinstance(arg, int | float) and not isinstance(arg, bool) for arg in args)
    if kwargs or len(args) < 2 or expressions == 0 or expressions + numbers < len(args):
        raise ValueError(f"{name} joins expressions, as in 'CCE + 0.5 * MAE', not plain values")
    if name == "+" and numbers:
        raise ValueError("a sum has expressions as its terms, as in 'CCE + 0.5 * MAE', not numbers")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name) or iskeyword(name):
        raise ValueError(f"{name!r} is not a name: letters, digits and single underscores, at most 64")
    return name


def _shown(text: str) -> str:
    return repr(text if len(text) <= 120 else f"{text[:117]}...")


def _write(value: Value, ordered: bool) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_write(item, ordered) for item in value)}]"
    if not isinstance(value, Expression):
        return repr(value)
    parts = [_write(arg, ordered) for arg in value.args]
    if value.name == "+":
        return " + ".join(parts)
    if value.name == "*":
        sums = (isinstance(arg, Expression) and arg.name == "+" for arg in value.args)
        return " * ".join(f"({part})" if is_sum else part for part, is_sum in zip(parts, sums, strict=True))
    kwargs = sorted(value.kwargs) if ordered else value.kwargs
    parts += [f"{key}={_write(arg, ordered)}" for key, arg in kwargs]
    return f"{value.name}({', '.join(parts)})" if parts else value.name
