"""README and docs: code blocks run and print what is shown; options, links, images and public names exist."""

from __future__ import annotations

import ast
import io
import re
import shlex
import warnings
from contextlib import redirect_stdout
from doctest import ELLIPSIS, OutputChecker
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from typer.main import get_command

import paper.__main__ as paper
import reweigh
from reweigh.lab.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# a block of code, and the block of text that follows it directly: its output
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$(?:\s+^```text\n(.*?)^```$)?", re.M | re.S)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
PROGRAMS = [
    ROOT / "paper" / "__main__.py",
    ROOT / "src" / "reweigh" / "lab" / "train" / "supervisor.py",
    *(ROOT / "benchmarks").glob("*.py"),
]


# the packages that a page's code needs beyond those of the tests
PACKAGES = {
    "transformers.md": ("transformers", "accelerate"),
    "trl.md": ("trl",),
    "lightning.md": ("lightning",),
    "skorch.md": ("skorch",),
    "sklearn.md": ("sklearn",),
    "loops.md": ("accelerate", "ignite"),
}
# the guide trains three nets
TIMED = [pytest.param(page, id=page.name, marks=[pytest.mark.slow] * (page.name == "guide.md")) for page in PAGES]


@pytest.mark.parametrize("page", TIMED)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the blocks of a page in order, in an empty folder and one namespace; Python must print the output shown."""
    for package in PACKAGES.get(page.name, ()):
        pytest.importorskip(package, minversion="1.6" if package == "sklearn" else None)
        warnings.simplefilter("ignore")  # they warn about each other and about workers
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for language, code, shown in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            printed = io.StringIO()
            with redirect_stdout(printed):
                name = f"{page.name}: {code.strip().splitlines()[0]}"
                exec(compile(code, name, "exec", dont_inherit=True), namespace)
            if shown:
                assert OutputChecker().check_output(shown, printed.getvalue(), ELLIPSIS), printed.getvalue()
        elif language == "sh":
            for line in code.strip().splitlines():
                command(shlex.split(line, comments=True))
        else:
            assert language == "text", f"{page.name}: a block is python, sh or text, not {language!r}"


def command(words: list[str]) -> None:
    """Run a command of reweigh or paper; for make and pip check only that the target or the extras exist."""
    from typer.testing import CliRunner

    if not words:
        return
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M), words
    elif words[:3] == ["python", "-m", "paper"]:
        assert paper.main(words[3:]) == 0, words
    elif words[:2] == ["pip", "install"]:
        settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")  # tomllib needs Python 3.11
        known = re.findall(r"^(\w+) = \[", settings.partition("[project.optional-dependencies]")[2], re.M)
        used = re.findall(r"\[([\w,]+)\]", " ".join(words))
        assert {extra for extras in used for extra in extras.split(",")} <= set(known)
    else:
        assert words[0] == "reweigh", words
        result = CliRunner().invoke(app, words[1:], catch_exceptions=False)
        assert result.exit_code == 0, f"{words}: {result.output}"


def options_of(command: Any) -> set[str]:
    """Return the options of a command and of its subcommands."""
    own = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return own.union(*map(options_of, getattr(command, "commands", {}).values()))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_options_exist(page: Path) -> None:
    named = set(OPTION.findall(page.read_text(encoding="utf-8")))
    others = {option for program in PROGRAMS for option in OPTION.findall(program.read_text(encoding="utf-8"))}
    assert named <= options_of(get_command(app)) | others | {"--nproc-per-node"}  # of torchrun


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_images_exist(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target and not target.startswith("#"):
            assert (page.parent / unquote(target.partition("#")[0])).exists(), target


def test_the_site_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every internal link, anchor and image of the site exists, and no page loads anything from a server."""
    pytest.importorskip("markdown_it")
    pytest.importorskip("pygments")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from build_docs import build

    pages = build(tmp_path)
    texts = {page.name: page.read_text(encoding="utf-8") for page in pages}
    anchors = {name: set(re.findall(r'\bid="([^"]+)"', text)) for name, text in texts.items()}
    for name, text in texts.items():
        for target in re.findall(r'(?:href|src)="([^"]+)"', text):
            if name == "explore.html" or target.startswith("https://"):
                continue
            file, _, anchor = target.partition("#")
            assert (tmp_path / (file or name)).exists(), f"{name}: {target}"
            assert not anchor or anchor in anchors[file or name], f"{name}: {target}"
        assert not re.search(r'<(script|link|img|iframe)[^>]+(src|href)="(https?:)?//', text), name
        assert "&lt;!--" not in text, f"{name} shows a comment"
    named = " ".join(texts.values())
    missing = [each for each in reweigh.__all__ if each[0].isupper() and f">{each}</h3>" not in named]
    assert missing == [], "public classes missing from the reference"


def test_docstrings_become_markdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from reference import markdown

    docstring = "Twice.\n\n    2 x\n\nArgs:\n    x: the number to\n        double.\n    y: more.\n\n>>> 1 + 1\n2"
    assert markdown(docstring).split("\n\n") == [
        "Twice.",
        "```text\n2 x\n```",
        "**Args**",
        "- `x`: the number to double.\n- `y`: more.",
        "```python\n>>> 1 + 1\n2\n```",
    ]


def test_signatures_are_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from reference import PAGES, page

    for name in PAGES:
        signatures = re.findall(r"^```python\n((?!>>>).+?)\n```$", page(name), re.MULTILINE | re.DOTALL)
        assert signatures, name
        for signature in signatures:
            if not signature.endswith("(...)"):
                ast.parse(f"def {signature}: ..." if "->" in signature else f"def {signature} -> None: ...")
    run = page("run")
    assert "    lr: float = 0.05,  # learning rate at the start\n" in run
    assert "bind(parameters: Sequence[str]) -> Expression" in run


def test_every_public_name_is_in_the_api_reference() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert [name for name in reweigh.__all__ if f"| `{name}" not in page] == []
    for modules, names in re.findall(r"^\| (`reweigh\.[^|]+) \| (.+) \|$", page, re.M):
        available = [import_module(module) for module in re.findall(r"`([\w.]+)`", modules)]
        for name in re.findall(r"`(\w+)`", names):
            assert any(hasattr(module, name) for module in available), f"{modules}: {name}"
