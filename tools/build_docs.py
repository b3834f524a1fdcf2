"""Build the documentation site, docs and reference as static HTML: `PYTHONPATH=. python tools/build_docs.py site`."""

from __future__ import annotations

import html
import re
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from reference import PAGES
from reference import page as reference_page

from reweigh import __version__
from reweigh.lab.report import explorer_page

ROOT = Path(__file__).resolve().parent.parent
FIRST = ("index", "idea", "guide", "choose", "api")
_HEADING = re.compile(r"\s*\{#([\w.]+)\}$")
_COMMENT = re.compile(r"^<!--.*-->$", re.MULTILINE)  # markers of generated tables
_LEXERS = {"sh": "bash", "python": "python", "json": "json"}


def guides() -> dict[str, str]:
    """Return the pages of docs by name with their titles, in the order of the menu: `FIRST`, then by title."""
    pages = (ROOT / "docs").glob("*.md")
    titles = {page.stem: page.read_text("utf-8").partition("\n")[0].lstrip("# ") for page in pages}
    titles["index"] = "Start"
    return {name: titles[name] for name in (*FIRST, *sorted(titles.keys() - set(FIRST), key=titles.__getitem__))}


def build(target: Path) -> list[Path]:
    """Write the site and return its pages."""
    target.mkdir(parents=True, exist_ok=True)
    pages = {f"{name}.html": (ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in guides()}
    pages |= {f"reference-{name}.html": reference_page(name) for name in PAGES}
    for name, text in pages.items():
        (target / name).write_text(_page(name, text), encoding="utf-8")
    (target / "explore.html").write_text(explorer_page(), encoding="utf-8")
    shutil.copytree(ROOT / "docs", target, ignore=shutil.ignore_patterns("*.md"), dirs_exist_ok=True)
    return [target / name for name in (*pages, "explore.html")]


def _page(name: str, text: str) -> str:
    body = render(text)
    title = re.search(r"<h1[^>]*>(.*?)</h1>", body)
    links = {f"{key}.html": label for key, label in guides().items()} | {"explore.html": "Explorer"}
    reference = {f"reference-{key}.html": label for key, (label, _) in PAGES.items()}
    return TEMPLATE.format(
        title=title[1] if title else "reweigh",
        style=f"{STYLE}{_code_style('default')}@media (prefers-color-scheme: dark) {{ {_code_style('github-dark')} }}",
        guides=_links(links, name),
        reference=_links(reference, name),
        body=body,
        version=__version__,
    )


def _links(links: dict[str, str], current: str) -> str:
    mark = ' aria-current="page"'
    return "".join(f'<li><a href="{to}"{mark if to == current else ""}>{label}</a></li>' for to, label in links.items())


def render(text: str) -> str:
    """Convert Markdown to HTML: headings get ids, code is highlighted, links to guides lead to their pages."""
    parser = MarkdownIt("commonmark", {"html": False, "highlight": _highlight}).enable("table")
    tokens = parser.parse(_COMMENT.sub("", text))
    used: set[str] = set()
    for opening, content in pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", _anchor(content, used))
    for token in (child for each in tokens for child in each.children or ()):
        target = token.attrGet("href") if token.type == "link_open" else None
        if isinstance(target, str) and "://" not in target:
            token.attrSet("href", re.sub(r"\.md(?=#|$)", ".html", target))
    return str(parser.renderer.render(tokens, parser.options, {}))


def _anchor(content: Any, used: set[str]) -> str:
    explicit = _HEADING.search(content.content)
    if explicit:
        for child in content.children:
            child.content = _HEADING.sub("", child.content)
    anchor = explicit[1] if explicit else re.sub(r"[^\w]+", "-", content.content.lower()).strip("-")
    while anchor in used:
        anchor += "-"
    used.add(anchor)
    return anchor


def _code_style(name: str) -> str:
    """Return the colours of highlighted code, on the background of the page's own style."""
    return str(HtmlFormatter(style=name, nobackground=True).get_style_defs("pre"))


def _highlight(code: str, language: str, _attributes: str) -> str:
    if language not in _LEXERS:
        return html.escape(code)
    return str(highlight(code, get_lexer_by_name(_LEXERS[language]), HtmlFormatter(nowrap=True)))


TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · reweigh</title><style>{style}</style></head>
<body><nav aria-label="Pages"><p><a href="index.html">reweigh</a> {version}</p>
<ul>{guides}</ul><p>Reference</p><ul>{reference}</ul></nav>
<main>{body}</main></body></html>
"""
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #4d5661; --rule: #d6dae0; --accent: #0a5c9e; --page: #fff;
  --code: #f1f3f6; --block: #f8f9fb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --soft: #a7afb9; --rule: #3a4149; --accent: #7cb8f5;
  --page: #14171b; --code: #262b31; --block: #1d2126; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1260px; display: grid; grid-template-columns: 210px minmax(0, 1fr); gap: 32px;
  padding: 24px; background: var(--page); color: var(--ink);
  font: 16px/1.6 system-ui, "Segoe UI", Roboto, Arial, sans-serif; }
nav { font-size: 0.9rem; } nav p { margin: 0 0 4px; color: var(--soft); } nav ul { list-style: none; padding: 0; }
nav a[aria-current] { font-weight: 700; color: var(--ink); } a { color: var(--accent); }
main { min-width: 0; overflow-wrap: break-word; } main > :not(table, pre) { max-width: 46rem; }
h1 { line-height: 1.2; margin-top: 0; } h2 { margin-top: 2em; }
h3, h4 { margin: 2em 0 0.3em; } img { max-width: 100%; height: auto; background: #fff; border-radius: 8px; }
pre { overflow-x: auto; padding: 12px 14px; border: 1px solid var(--rule); border-radius: 8px; font-size: 0.85rem;
  line-height: 1.45; background: var(--block); } code { font-family: ui-monospace, Menlo, Consolas, monospace; }
:not(pre) > code { background: var(--code); padding: 1px 4px; border-radius: 4px; font-size: 0.9em; }
table { border-collapse: collapse; display: block; overflow-x: auto; font-size: 0.92rem; }
th, td { border: 1px solid var(--rule); padding: 5px 8px; text-align: left; vertical-align: top; }
thead:not(:has(th:not(:empty))) { display: none; } td[style*="right"], th code, td code { white-space: nowrap; }
@media (max-width: 760px) { body { grid-template-columns: minmax(0, 1fr); padding: 14px; gap: 8px; }
  nav ul { columns: 2; } td:not([style]) { min-width: 7rem; } }
"""

if __name__ == "__main__":
    for written in build(Path(sys.argv[1] if len(sys.argv) > 1 else "site")):
        print(written)
