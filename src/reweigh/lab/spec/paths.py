"""Paths in one spelling, without what leads nowhere, also inside expressions: given('./a.npy') is given('a.npy')."""

from __future__ import annotations

from pathlib import PurePosixPath

from reweigh.lab.spec.expression import Expression, Value

FILES = {
    "given": "file",
    "kept": "file",
    "file": "path",
    "SoftLabels": "file",
    "JointLabels": "file",
    "Curriculum": "file",
}
"""What names a file in its first argument, and what that is called."""


def plain_path(path: str) -> str:
    """A path without `./`, doubled slashes and a slash at its end; `..` stays, which may lead through a link.

    >>> plain_path("./a//b/"), plain_path("a/../b")
    ('a/b', 'a/../b')
    """
    return str(PurePosixPath(path)) if path else path


def plain_paths(expression: Expression) -> Expression:
    """The expression with every path in it in one spelling.

    >>> from reweigh.lab.spec import parse
    >>> print(plain_paths(parse("Forward(file('./T.npy'))")))
    Forward(file('T.npy'))
    """
    place = FILES.get(expression.name)

    def inside(value: Value, is_path: bool) -> Value:
        if isinstance(value, Expression):
            return plain_paths(value)
        return plain_path(value) if is_path and isinstance(value, str) else value

    args = tuple(inside(value, place is not None and i == 0) for i, value in enumerate(expression.args))
    kwargs = tuple((key, inside(value, key == place)) for key, value in expression.kwargs)
    return Expression(expression.name, args, kwargs)
