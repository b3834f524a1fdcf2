"""Public names, import cost and import direction of the package."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import reweigh

SOURCE = Path(reweigh.__file__).parent
ROOT = Path(__file__).parent.parent

PUBLIC = """
AEL AGCE AUL Auto Beta BinaryCriterion CCE Criterion Curve DM Exponential Focal ForwardSymmetric GCE IMAE Indexed
LinearCriterion MAE MSE Normal PerClass PHuber Recorder SL Tapered TruncatedGCE Uniform Weighting __version__
advise batch_stats emphasis_of find_suspects from_loss
"""


def test_public_names() -> None:
    assert set(reweigh.__all__) == set(PUBLIC.split())
    for name in reweigh.__all__:
        assert getattr(reweigh, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = reweigh.nothing


def loaded_by(code: str) -> set[str]:
    """Return the modules that a program loads."""
    program = f"import sys\n{code}\nprint(*sorted(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(result.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("code", ["import reweigh", "import reweigh.lab.spec", "import reweigh.lab.cli"])
def test_torch_is_imported_lazily(code: str) -> None:
    assert not loaded_by(code) & {"torch", "numpy"}


@pytest.mark.parametrize(
    ("code", "limit"), [("from reweigh import Criterion, DM", 15), ("from reweigh import find_suspects", 20)]
)
def test_importing_the_library_loads_few_modules(code: str, limit: int) -> None:
    modules = loaded_by(code)
    ours = {name for name in modules if name.partition(".")[0] == "reweigh"}
    assert len(ours) <= limit, sorted(ours)
    assert not any(name.startswith(("reweigh.lab.", "paper")) or name == "reweigh.lab" for name in modules)
    assert not modules & {"typer", "PIL", "safetensors", "sklearn", "matplotlib", "pyarrow", "gensim", "scipy"}
    assert not modules & {"transformers", "trl", "lightning", "skorch"}  # reweigh.integrations


def test_drawing_a_weighting_imports_no_method_or_net() -> None:
    code = "from reweigh.lab.cli.app import app; app(['edf', 'DM(0.5, 8)'], standalone_mode=False)"
    modules = loaded_by(code)
    assert "reweigh.lab.figures.curves" in modules
    assert not any(
        name.startswith(("reweigh.lab.methods", "reweigh.lab.nets", "reweigh.lab.batches")) for name in modules
    )


def imports(path: Path) -> set[str]:
    """Return the modules of this repository that a file imports, including nested imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.partition(".")[0] in ("reweigh", "paper")}


LIBRARY = [path for path in SOURCE.rglob("*.py") if "lab" not in path.relative_to(SOURCE).parts]


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_library_imports_neither_the_bench_nor_the_paper(path: Path) -> None:
    allowed = "reweigh.lab.cli" if path.name == "__main__.py" else "none"  # the command starts the command line
    assert not [n for n in imports(path) if re.match(r"(reweigh\.lab|paper)\b", n) and not n.startswith(allowed)]


def test_the_bench_does_not_import_the_paper() -> None:
    for path in (SOURCE / "lab").rglob("*.py"):
        assert not {name for name in imports(path) if name.startswith("paper")}, path


PRIVATE = re.compile(
    r"torch\._C|_functorch|forward_ad\._|_dispatch_stack|_get_tracing_state|\b_global_\w*hooks|_cuda_get|torch\.cuda\._"
    r"|_compile_kernel|packed_metadata|\bctypes\b|super\(torch\.autograd\.Function"
)


@pytest.mark.parametrize("folder", ["src", "paper"])
def test_no_private_interfaces_of_torch_or_triton(folder: str) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert not PRIVATE.search(line), f"{path}, line {number}: {line.strip()}"
