"""A command line in this process, and one tiny finished run for the commands that look at runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reweigh.lab.cli.app import app

TINY = ["--data", "digits", "--net", "mlp-8", "--iterations", "40", "--evaluate-every", "10", "--device", "cpu"]
NOISY = ["--noise", "symmetric", "--rate", "0.4"]


class Ended:
    """What a command gave."""

    def __init__(self, code: int, stdout: str, stderr: str) -> None:
        self.code, self.stdout, self.stderr = code, stdout, stderr

    @property
    def json(self) -> Any:
        assert self.stdout.count("\n") == 1, f"expected one JSON object, got {self.stdout!r}"
        return json.loads(self.stdout)


@pytest.fixture(scope="session")
def reweigh() -> Callable[..., Ended]:
    """`reweigh("train", "--data", ...)`; an error that is not expected is raised as it is."""

    def call(*args: object) -> Ended:
        found = CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=False, prog_name="reweigh")
        return Ended(found.exit_code, found.stdout, found.stderr)

    return call


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    """The options of a run that takes a moment, but for what teaches it."""
    return [*TINY, *NOISY]


@pytest.fixture(scope="session")
def finished(reweigh: Callable[..., Ended], tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run; not to be changed."""
    root = tmp_path_factory.mktemp("finished") / "runs"
    ended = reweigh("train", *tiny, "--weighting", "GCE(0.7)", "--runs", root, "--json")
    assert ended.code == 0, ended.stderr
    return Path(ended.json["folder"])
