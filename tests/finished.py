"""What two runs that should be one and the same are compared by."""

from __future__ import annotations

import json
from pathlib import Path


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a finished run that decides what it is, by name; how long it took is not among them."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock")
    found = {path.name: path.read_bytes() for path in files}
    result = json.loads(found["result.json"])
    del result["seconds"]
    return found | {"result.json": json.dumps(result).encode()}


def learnt(folder: Path) -> dict[str, bytes]:
    """`contents` without the header, which says how, and by which commit, it was carried out."""
    return {name: content for name, content in contents(folder).items() if name != "run.json"}
