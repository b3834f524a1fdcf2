"""README and docs: code blocks run and print what is shown; options, links, images and public names exist."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
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
    ROOT / "tests" / "attack" / "__main__.py",
    ROOT / "src" / "reweigh" / "lab" / "train" / "supervisor.py",
    *(ROOT / "benchmarks").glob("*.py"),
]


SITE = {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}

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


def test_the_site_is_complete(tmp_path: Path) -> None:
    """Every internal link, anchor and image of the site exists, and no page loads anything from a server."""
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    line = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | SITE)
    assert built.returncode == 0, built.stderr
    texts = {
        page.relative_to(tmp_path): page.read_text(encoding="utf-8")
        for page in tmp_path.rglob("*.html")
        if page.name not in ("404.html", "explore.html")
    }
    assert {Path(page.stem + ".html") for page in PAGES[1:]} <= texts.keys()
    anchors = {name: set(re.findall(r'\b(?:id|name)="([^"]+)"', text)) for name, text in texts.items()}
    for name, text in texts.items():
        for target in re.findall(r'(?:href|src)="([^"]+)"', text):
            file, _, anchor = unquote(target).partition("#")
            if re.match(r"https?:|data:|mailto:", target) or target == ".":
                continue
            path = Path(os.path.normpath(name.parent / file)) if file else name
            assert (tmp_path / path).exists(), f"{name}: {target}"
            assert not anchor or path not in anchors or anchor in anchors[path] | {"__search"}, f"{name}: {target}"
        assert not re.search(r'<(script|link|img|iframe)[^>]+(src|href)="(https?:)?//', text), name
    documented = set(re.findall(r'id="(?:reweigh|paper)[\w.]*\.(\w+)"', " ".join(texts.values())))
    assert {each for each in reweigh.__all__ if each[0].isupper()} <= documented


def test_every_public_name_is_in_the_api_reference() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert [name for name in reweigh.__all__ if f"| `{name}" not in page] == []
    for modules, names in re.findall(r"^\| (`reweigh\.[^|]+) \| (.+) \|$", page, re.M):
        available = [import_module(module) for module in re.findall(r"`([\w.]+)`", modules)]
        for name in re.findall(r"`(\w+)`", names):
            assert any(hasattr(module, name) for module in available), f"{modules}: {name}"
