"""Reference pages in Markdown, from the docstrings of the library's public names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from textwrap import dedent
from types import ModuleType
from typing import Any, get_type_hints

# page -> title, and the modules whose public names it lists
PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "weighting": ("Weightings", ("reweigh.weightings",)),
    "criterion": ("Criterion", ("reweigh.criterion",)),
    "density": ("Densities and objectives", ("reweigh.emphasis", "reweigh.margin")),
    "losses": ("Other losses", ("reweigh.losses",)),
    "noise": ("Noise and imbalance", ("reweigh.noise", "reweigh.imbalance")),
    "data": (
        "Data",
        ("reweigh.lab.data", "reweigh.lab.data.registry", "reweigh.lab.data.folder", "reweigh.lab.data.table"),
    ),
    "run": (
        "Runs and records",
        ("reweigh.lab.spec", "reweigh.lab.run", "reweigh.lab.record", "reweigh.lab.predict", "reweigh.recommendation"),
    ),
    "report": ("Reports", ("reweigh.lab.report", "reweigh.lab.figures", "reweigh.lab.report.events")),
    "suspects": ("Suspects", ("reweigh.lab.suspects",)),
    "retrieval": ("Retrieval", ("reweigh.lab.retrieval",)),
    "experiment": ("Experiments", ("paper", "paper.protocols")),
}
_SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Yields")


def page(name: str) -> str:
    """One reference page."""
    title, modules = PAGES[name]
    return "\n\n".join([f"# {title}", *(part for module in modules for part in _module(import_module(module)))])


def _module(module: ModuleType) -> Iterator[str]:
    yield f"## {module.__name__}"
    yield markdown(inspect.getdoc(module) or "")
    for name in _public(module):
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
            continue  # what has no words of its own is described where it was defined
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
        return _explained(value, signature)
    text = str(signature)
    text = re.sub(r"(: |-> )(?:ForwardRef\('([^']*)'\)|'([^']*)')", r"\1\2\3", text)  # annotations without quotes
    text = re.sub(r"<factory>|<\S+ .*? at 0x[0-9a-f]+>", "...", text)  # a default that has no name
    text = re.sub(r"^\(self(, )?", "(", text)
    if inspect.isclass(value):
        text = text.removesuffix(" -> None")
    return text if len(text) < 100 else re.sub(r", (?=\w+:|\*|/)", ",\n    ", text)


def _explained(kind: type, signature: inspect.Signature) -> str:
    """A signature a line each, and behind an annotated argument the words that its annotation holds."""
    hints = get_type_hints(kind, include_extras=True)
    lines, keyword_only = ["("], False
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            lines[-1], keyword_only = f"{lines[-1]}*,", True
        *_, told = getattr(hints[name], "__metadata__", ("",))
        plain = parameter.replace(annotation=getattr(hints[name], "__origin__", hints[name]))
        lines.append(f"    {plain},".replace("typing.", "") + (f"  # {told}" if told else ""))
    return "\n".join([*lines, ")"])


def markdown(docstring: str) -> str:
    """A docstring as Markdown: sections become lists, doctests and indented lines become code."""
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
    told = []
    for entry in entries:
        joined = " ".join(line.strip() for line in entry.splitlines())
        name, colon, meaning = joined.partition(": ")
        plain = colon and re.fullmatch(r"[\w, *]+", name)
        told.append(f"- `{name}`: {meaning}" if plain else f"- {joined}")
    return "\n".join(told)
