"""The package as a whole: what it exports, what importing it costs, and which file may import which."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import reweigh

SOURCE = Path(reweigh.__file__).parent

# A part imports only from the levels above it and from its own package.
LEVELS = [
    {"errors", "streams", "spec"},
    {"weighting", "direction"},
    {"density", "metrics", "noise"},
    {"imbalance"},
    {"kernels"},
    {"criterion"},
    {"functional", "losses", "data"},
    {"batches", "nets"},
    {"record"},
    {"methods"},
    {"train"},
    {"retrieval"},
    {"run"},
    {"figures", "recommendation"},
    {"predict", "procedures"},
    {"suspects"},
    {"report"},
    {"search"},
    {"experiment"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: number for number, names in enumerate(LEVELS) for name in names}

PUBLIC = """
AEL AGCE AUL Beta BinaryCriterion CCE Criterion Curve DM Emphasis Exponential Focal ForwardSymmetric GCE IMAE
LinearCriterion MAE MSE Normal PHuber PerClass Product Recommendation Run SL Scaled Stats Sum Tapered TruncatedGCE
Uniform Weighting __version__ authors emphasis_of emphasis_variance execute find_suspects from_loss functional inspect
integral is_bounded load_model margin parse potential potential_range recommend share symmetry_gap text unit
unit_direction
"""


def test_the_public_surface_is_what_it_was_meant_to_be() -> None:
    public = set(reweigh.__all__)
    assert public >= set(PUBLIC.split())
    for name in public:
        assert getattr(reweigh, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = reweigh.nothing


def loaded_by(code: str) -> set[str]:
    program = f"import sys\n{code}\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(result.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("code", ["import reweigh", "import reweigh.lab.spec", "import reweigh.lab.cli"])
def test_torch_is_not_imported_before_it_is_needed(code: str) -> None:
    assert not loaded_by(code) & {"torch", "numpy"}


def test_the_library_does_without_the_command_line() -> None:
    code = "import reweigh.lab.run, reweigh.criterion, reweigh.lab.nets.registry, reweigh.lab.data.registry"
    assert not loaded_by(code) & {"typer", "rich", "sklearn", "matplotlib", "pyarrow", "gensim", "scipy"}


def imports(path: Path) -> set[str]:
    """The parts of reweigh that a file imports, at its top or inside."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "reweigh":
                names = [f"reweigh.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("reweigh.")}
    return found - set(reweigh.__all__) - {"__version__"}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if part == "__init__":
        return
    assert part in LEVEL, f"give {part} a level"
    for other in imports(path) - {part}:
        assert LEVEL.get(other, len(LEVELS)) < LEVEL[part], f"{part} must not import {other}"


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples"])
def test_files_stay_short(folder: str) -> None:
    root = SOURCE.parent.parent / folder
    long = {str(path): n for path in root.rglob("*.py") if (n := len(path.read_text().splitlines())) > 300}
    assert not long, f"one idea, one file: {long}"
