"""An extension of griffe for the site: doctests and indented lines in docstrings become blocks of code."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Fence doctests before docstrings are parsed."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """Put each block that starts with >>> between fences.

    >>> print(fenced("Twice.\\n\\n>>> 1 + 1\\n2"))
    Twice.
    <BLANKLINE>
    ```python
    >>> 1 + 1
    2
    ```
    """
    blocks = re.split(r"\n[ ]*\n", docstring)
    return "\n\n".join(f"```python\n{block}\n```" if block.startswith(">>>") else block for block in blocks)
