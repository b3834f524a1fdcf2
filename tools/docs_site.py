"""Hooks of mkdocs: pages of the reference, pages from outside docs/, and the explorer."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from reweigh.lab.report import explorer_page

_MODULE = "    options: {members: false, show_root_heading: false, show_root_toc_entry: false}"
ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
"""Pages of the repository's root, and their names on the site."""

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
        ),
    ),
    "search": ("Search and procedures", ("reweigh.lab.search", "reweigh.lab.procedures")),
    "report": ("Reports", ("reweigh.lab.report", "reweigh.lab.figures", "reweigh.lab.report.events")),
    "suspects": ("Wrong labels", ("reweigh.labels", "reweigh.lab.suspects")),
    "retrieval": ("Person retrieval", ("reweigh.lab.retrieval",)),
    "paper": ("The paper's experiments", ("paper", "paper.protocols")),
}


def on_config(config: MkDocsConfig) -> None:
    """Complete the menu."""
    titles = [{title: f"reference/{name}.md"} for name, (title, _) in PAGES.items()]
    explorer = {"Weighting explorer": "explore.html"}
    config.nav = [*(config.nav or []), {"Reference": titles}, {"Project": [*OUTSIDE.values(), explorer]}]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that have no file in docs/."""
    for name in PAGES:
        files.append(File.generated(config, f"reference/{name}.md", content=reference(name)))
    for source, name in OUTSIDE.items():
        text = (ROOT / source).read_text("utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links out of docs/ to the pages of the site."""
    for source, name in OUTSIDE.items():
        markdown = markdown.replace(f"](../{source}", f"]({name}").replace(f"]({source}", f"]({name}")
    return markdown


def on_post_build(config: MkDocsConfig) -> None:
    """Write the explorer."""
    (Path(config.site_dir) / "explore.html").write_text(explorer_page(), encoding="utf-8")


def reference(name: str) -> str:
    """Return a page of the reference: the docstrings of modules and of their public names."""
    title, modules = PAGES[name]
    lines = [f"# {title}"]
    for entry in modules:
        path, _, names = entry.partition(": ")
        module = import_module(path)
        lines += [f"## {path}", f"::: {path}\n{_MODULE}"]
        for public in names.split() or _public(module):
            value = getattr(module, public)
            if isinstance(value, type) or callable(value):
                lines.append(f"::: {path}.{public}")
    return "\n\n".join(lines) + "\n"


def _public(module: ModuleType) -> list[str]:
    named: list[str] | None = getattr(module, "__all__", None)
    if named is not None:
        return list(named)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
