"""What an accessibility checker finds wrong on a page."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest


def axe(page: Any, rules: list[str] | None = None) -> list[str]:
    """What is wrong: by all of axe's rules, or by those of a kind."""
    package = pytest.importorskip("axe_playwright_python", reason="axe is not installed")
    page.evaluate((files(package) / "axe.min.js").read_text(encoding="utf-8"))
    options = {} if rules is None else {"runOnly": rules}
    found = page.evaluate("async (options) => (await axe.run(options)).violations", options)
    return [f"{each['id']}: {[node['html'][:120] for node in each['nodes'][:3]]}" for each in found]
