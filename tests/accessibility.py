"""Accessibility checks of HTML pages with axe."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest


def axe(page: Any, rules: list[str] | None = None) -> list[str]:
    """Return the violations of all of axe's rules, or of those with the given tags."""
    package = pytest.importorskip("axe_playwright_python", reason="axe is not installed")
    page.evaluate((files(package) / "axe.min.js").read_text(encoding="utf-8"))
    options = {} if rules is None else {"runOnly": rules}
    violations = page.evaluate("async (options) => (await axe.run(options)).violations", options)
    return [f"{each['id']}: {[node['html'][:120] for node in each['nodes'][:3]]}" for each in violations]
