"""run.json: the run, its data, and the environments it was trained in."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from reweigh.errors import DataError
from reweigh.lab.record.files import read_json
from reweigh.lab.record.schema import check_schema, integer, list_of, nullable, number, object_of, string
from reweigh.lab.spec import DATA_FIELDS, Run

FORMAT = 1

_NOISE = object_of(
    {"kind": string, "rate": nullable(number), "measured": number, "hash": string},
    {"counts": nullable(list_of(list_of(number)))},
)
DETAILS = object_of(
    {},
    {
        "name": string,
        "holdout": string,
        "class_names": list_of(string),
        "class_counts": list_of(integer),
        "noise": _NOISE,
    },
)
_HEADER = object_of(
    {
        "run": object_of(),
        "data_hash": string,
        "label_hash": string,
        "examples": integer,
        "details": DETAILS,
        "environments": list_of(object_of()),
    }
)


@dataclass(frozen=True)
class Header:
    """The fixed part of a record.

    Args:
        run: the run.
        data_hash, label_hash: hashes of the data set, and of the training labels (with noise).
        examples: the number of training examples; the length of a column of p.
        details: JSON values such as the measured noise rate and the class names.
        environments: versions, commit and device; a new entry whenever they changed.
    """

    run: Run
    data_hash: str
    label_hash: str
    examples: int
    details: Mapping[str, Any] = field(default_factory=dict)
    environments: tuple[Mapping[str, Any], ...] = ()

    def to_mapping(self) -> dict[str, Any]:
        """Return the content of run.json."""
        return {
            "format": FORMAT,
            "hash": self.run.hash(),
            "run": self.run.to_mapping(),
            "data_hash": self.data_hash,
            "label_hash": self.label_hash,
            "examples": self.examples,
            "details": dict(self.details),
            "environments": list(self.environments),
        }


def read_header(folder: Path) -> Header:
    """Return the header of a run folder; raise DataError if run.json is missing, damaged or of another format."""
    path = folder / "run.json"
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise DataError(f"{path}: format is {content.get('format')!r}; this version reads {FORMAT}")
    check_schema(path, content, _HEADER)
    try:
        header = Header(
            run=Run.from_mapping(content["run"]),
            data_hash=content["data_hash"],
            label_hash=content["label_hash"],
            examples=content["examples"],
            details=content["details"],
            environments=tuple(content["environments"]),
        )
        expected = header.run.hash()  # validates the arguments of a weighting too
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: {error}") from error
    if content.get("hash") != expected:
        raise DataError(f"{path}: hash is {content.get('hash')!r}, but its run has {expected!r}")
    return header


def data_versions(headers: Iterable[Header]) -> Callable[[Header], str | None]:
    """Return a function from a header to the start of its data hash, or to None if the data's name has only one hash.

    The fields of a run name its data, but the content under that name may have changed between runs.
    """
    versions: dict[object, set[str]] = {}
    for header in headers:
        versions.setdefault(_data_name(header.run), set()).add(header.data_hash)
    return lambda header: header.data_hash[:12] if len(versions[_data_name(header.run)]) > 1 else None


def _data_name(run: Run) -> tuple[object, ...]:
    """Return the fields that name a run's data."""
    return run.data, *(getattr(run, name) for name in DATA_FIELDS if name not in ("data_root", "data_hash"))


def check_same_run(path: Path, recorded: Header, current: Header) -> None:
    """Raise DataError if a record belongs to another run, or to other data or labels."""
    for name, old, new in (
        ("run", recorded.run.hash(), current.run.hash()),
        ("data_hash", recorded.data_hash, current.data_hash),
        ("label_hash", recorded.label_hash, current.label_hash),
        ("examples", recorded.examples, current.examples),
    ):
        if old != new:
            raise DataError(f"{path}: {name} is {old!r} in the record and {new!r} now; use another folder of runs")


def environment(device: str = "cpu") -> dict[str, Any]:
    """Return the versions, commit, machine and settings that can change a result."""
    import numpy
    import torch

    facts: dict[str, Any] = {
        "reweigh": _version(),
        "commit": _commit(Path(__file__).parent),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "device": device,
    }
    if torch.device(device).type == "cuda":
        facts |= {
            "device_name": torch.cuda.get_device_name(device),
            "cuda": torch.version.cuda,
            "tf32": torch.backends.cuda.matmul.allow_tf32,
        }
    return facts


def _version() -> str | None:
    try:
        return version("reweigh")
    except PackageNotFoundError:
        return None


def _commit(folder: Path) -> str | None:
    """Return the commit of this code, with `-dirty` if it was changed since; None if git does not track it."""
    name = Path(__file__).name
    try:
        # an installed copy may lie inside an unrelated repository
        subprocess.run(
            ["git", "ls-files", "--error-unmatch", name], cwd=folder, check=True, capture_output=True, timeout=10
        )
        # without the lock of `git describe`, which a kill would leave in the repository
        command = ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=10, text=True)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.splitlines()
    commit = next(line.rpartition(" ")[2] for line in lines if line.startswith("# branch.oid "))
    if commit == "(initial)":
        return None
    return commit + ("" if all(line.startswith("#") for line in lines) else "-dirty")
