"""Write reference pages in Markdown from the docstrings of public names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from textwrap import dedent
from types import ModuleType
from typing import Any, get_type_hints

# page -> title and modules, with the names to show where a module has no `__all__` and not all names are public
PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "weighting": ("Weightings", ("reweigh.weightings",)),
    "criterion": (
        "Criterion",
        (
            "reweigh.auto: Auto Indexed",
            "reweigh.criterion",
            "reweigh.linear: LinearCriterion",
            "reweigh.functional: derivative_manipulation binary_derivative_manipulation BatchStats",
        ),
    ),
    "emphasis": (
        "Emphasis and objectives",
        (
            "reweigh.emphasis: emphasis_of Emphasis from_loss integral unit_weighting emphasis_variance emphasis_share "
            "potential potential_range is_bounded symmetry_gap",
            "reweigh.margin: margin unit_direction",
        ),
    ),
    "losses": ("Other losses", ("reweigh.losses",)),
    "metrics": ("Metrics", ("reweigh.metrics",)),
    "noise": ("Noise and imbalance", ("reweigh.noise", "reweigh.imbalance")),
    "data": (
        "Data",
        (
            "reweigh.lab.data",
            "reweigh.lab.data.registry: load",
            "reweigh.lab.data.folder: load",
            "reweigh.lab.data.table: load",
        ),
    ),
    "run": (
        "Runs and records",
        (
            "reweigh.lab.spec",
            "reweigh.lab.run",
            "reweigh.lab.record",
            "reweigh.lab: load_model",
            "reweigh.lab.predict: Predictions predict",
            "reweigh.recommendation: Recommendation recommend",
        ),
    ),
    "search": ("Search and procedures", ("reweigh.lab.search", "reweigh.lab.procedures")),
    "report": ("Reports", ("reweigh.lab.report", "reweigh.lab.figures", "reweigh.lab.report.events")),
    "suspects": ("Wrong labels", ("reweigh.labels", "reweigh.lab.suspects")),
    "retrieval": ("Person retrieval", ("reweigh.lab.retrieval",)),
    "paper": ("The paper's experiments", ("paper", "paper.protocols")),
}
_SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Yields")


def page(name: str) -> str:
    """Return one reference page."""
    title, modules = PAGES[name]
    return "\n\n".join([f"# {title}", *(part for module in modules for part in _module(module))])


def _module(entry: str) -> Iterator[str]:
    path, _, names = entry.partition(": ")
    module = import_module(path)
    yield f"## {module.__name__}"
    yield markdown(inspect.getdoc(module) or "")
    for name in names.split() or _public(module):
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            yield f"### {name} {{#{module.__name__}.{name}}}"
            yield f"```python\n{name}{_signature(value)}\n```"
            yield markdown(inspect.getdoc(value) or "")
        if inspect.isclass(value):
            yield from _methods(value, f"{module.__name__}.{name}")


def _public(module: ModuleType) -> list[str]:
    named: list[str] | None = getattr(module, "__all__", None)
    if named is not None:
        return list(named)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def _methods(kind: type, path: str) -> Iterator[str]:
    for name, value in vars(kind).items():
        if name.startswith("_") or not (isinstance(value, property) or inspect.isfunction(value)) or not value.__doc__:
            continue  # without a docstring of its own it is described where it was defined
        signature = "" if isinstance(value, property) else _signature(value)
        yield f"#### {kind.__name__}.{name} {{#{path}.{name}}}"
        yield f"```python\n{name}{signature}\n```" if signature else "A property."
        yield markdown(inspect.getdoc(value) or "")


def _signature(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    if any("Annotated[" in str(each.annotation) for each in signature.parameters.values()):
        return _annotated(value, signature)
    text = str(signature)
    text = re.sub(r"(: |-> )(?:ForwardRef\('([^']*)'\)|'([^']*)')", r"\1\2\3", text)  # annotations without quotes
    text = re.sub(r"<factory>|<\S+ .*? at 0x[0-9a-f]+>", "...", text)  # defaults without a name
    text = re.sub(r"^\(self(, )?", "(", text)
    if inspect.isclass(value):
        text = text.removesuffix(" -> None")
    return text if len(text) < 100 else re.sub(r", (?=\w+:|\*|/)", ",\n    ", text)


def _annotated(kind: type, signature: inspect.Signature) -> str:
    """Return a signature with one line per argument, followed by the text of its `Annotated` type."""
    hints = get_type_hints(kind, include_extras=True)
    lines, keyword_only = ["("], False
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            lines[-1], keyword_only = f"{lines[-1]}*,", True
        *_, text = getattr(hints[name], "__metadata__", ("",))
        plain = parameter.replace(annotation=getattr(hints[name], "__origin__", hints[name]))
        lines.append(f"    {plain},".replace("typing.", "") + (f"  # {text}" if text else ""))
    return "\n".join([*lines, ")"])


def markdown(docstring: str) -> str:
    """Convert a docstring to Markdown: sections become lists, doctests and indented lines become code."""
    blocks = re.split(r"\n[ ]*\n", docstring.strip())
    return "\n\n".join(_block(block) for block in blocks)


def _block(block: str) -> str:
    head, _, rest = block.partition("\n")
    if head.rstrip(":") in _SECTIONS and head.endswith(":"):
        return f"**{head[:-1]}**\n\n{_items(dedent(rest))}"
    if block.startswith(">>>"):
        return f"```python\n{block}\n```"
    if all(line.startswith("    ") for line in block.splitlines()):
        return f"```text\n{dedent(block)}\n```"
    if any(line.startswith("    ") for line in rest.splitlines()):
        return f"```text\n{block}\n```"
    return block


def _items(text: str) -> str:
    entries = re.split(r"\n(?=\S)", text)
    items = []
    for entry in entries:
        joined = " ".join(line.strip() for line in entry.splitlines())
        name, colon, text = joined.partition(": ")
        plain = colon and re.fullmatch(r"[\w, *]+", name)
        items.append(f"- `{name}`: {text}" if plain else f"- {joined}")
    return "\n".join(items)
