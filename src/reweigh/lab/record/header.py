"""run.json: what a run is and what it was given, and every environment that took part in it."""

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
from reweigh.lab.spec import Run

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
        data_hash, label_hash: content of the data set, and of the labels trained on (with noise).
        examples: how many are trained on; the length of a column of p.
        details: what else should be known, in values that JSON has: the measured noise rate, class names, ...
        environments: versions, commit and device, one entry for each that differs from the one before.
    """

    run: Run
    data_hash: str
    label_hash: str
    examples: int
    details: Mapping[str, Any] = field(default_factory=dict)
    environments: tuple[Mapping[str, Any], ...] = ()

    def to_mapping(self) -> dict[str, Any]:
        """The content of run.json."""
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
    """The header of a run folder; DataError where run.json is missing, damaged or of another format."""
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
        found = header.run.hash()  # which looks at the arguments of a weighting
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: {error}") from error
    if content.get("hash") != found:
        raise DataError(f"{path}: hash is {content.get('hash')!r}, but its run has {found!r}")
    return header


def data_versions(headers: Iterable[Header]) -> Callable[[Header], str | None]:
    """What tells the data of one of these runs from others of their name: how their hash begins; None without others.

    A run's fields say which data it is of, not what they held.
    """
    versions: dict[object, set[str]] = {}
    for header in headers:
        versions.setdefault(_data_name(header.run), set()).add(header.data_hash)
    return lambda header: header.data_hash[:12] if len(versions[_data_name(header.run)]) > 1 else None


def _data_name(run: Run) -> tuple[object, ...]:
    """What the data of a run are called: under one name they should have one hash."""
    columns = run.label_column, run.text_column, run.text_vectors, run.image_size
    return run.data, run.test_data, *columns


def check_same(path: Path, there: Header, here: Header) -> None:
    """Refuse to go on with a record of something else."""
    for name, old, new in (
        ("run", there.run.hash(), here.run.hash()),
        ("data_hash", there.data_hash, here.data_hash),
        ("label_hash", there.label_hash, here.label_hash),
        ("examples", there.examples, here.examples),
    ):
        if old != new:
            raise DataError(f"{path}: {name} is {old!r} there and {new!r} now; it is the record of something else")


def environment(device: str = "cpu") -> dict[str, Any]:
    """Versions, commit, machine and settings, as far as they can decide a result."""
    import numpy
    import torch

    from reweigh.ops import compiler_version

    found: dict[str, Any] = {
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
        found |= {
            "device_name": torch.cuda.get_device_name(device),
            "cuda": torch.version.cuda,
            "tf32": torch.backends.cuda.matmul.allow_tf32,
        }
    else:
        found["compiler"] = compiler_version()
    return found


def _version() -> str | None:
    try:
        return version("reweigh")
    except PackageNotFoundError:
        return None


def _commit(folder: Path) -> str | None:
    """The commit this code is at, `-dirty` where it was changed since; None where git does not track it."""
    name = Path(__file__).name
    try:
        # An installed copy may lie inside somebody else's repository, whose commit would mean nothing.
        subprocess.run(
            ["git", "ls-files", "--error-unmatch", name], cwd=folder, check=True, capture_output=True, timeout=10
        )
        command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        described = subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=10, text=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip() or None
