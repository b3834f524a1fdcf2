"""File contents of finished runs, for comparing two runs that should be identical."""

from __future__ import annotations

import json
from pathlib import Path


def contents(folder: Path) -> dict[str, bytes]:
    """Return the contents of a finished run's files by name, without the lock and the training time."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock")
    contents_by_name = {path.name: path.read_bytes() for path in files}
    result = json.loads(contents_by_name["result.json"])
    del result["seconds"], result["digest"]
    return contents_by_name | {"result.json": json.dumps(result).encode()}


def learnt(folder: Path) -> dict[str, bytes]:
    """Return `contents` without the header, which records options and commit."""
    return {name: content for name, content in contents(folder).items() if name != "run.json"}
