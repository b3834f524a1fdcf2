"""The folder of a procedure: its runs, the files made between them, and its result.

    runs/forgetting-digits-mlp-s0-0123456789ab/procedure.json

        {"format": 1, "procedure": "forgetting", "run": {...}, "settings": {"rates": [...]},
         "runs": [{"role": "dropout 0.2", "folder": "digits-mlp-CCE-..."}, ...],
         "made": {"labels.npy": "..."},                        hashes of the data and labels of the run that made it
         "result": {...}}                                      null until the procedure is finished

The runs are ordinary runs in the same root. Calling an interrupted procedure again resumes it: finished runs are
reused, the interrupted one resumes from its checkpoint, and all files are identical to those of an unbroken procedure.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.record import read_header, read_result
from reweigh.lab.record.files import make_folder, read_json, replace_file, write_json
from reweigh.lab.record.schema import check_schema, list_of, nullable, number, object_of, string
from reweigh.lab.run.material import check_same_data, gather
from reweigh.lab.spec import Run, parse
from reweigh.lab.spec.expression import LONGEST_STRING, Value, canonical
from reweigh.noise.files import DIGITS, array_bytes, file_hash

FORMAT = 1
FILE = "procedure.json"

_SCORES = object_of({"final": nullable(number)})
_JOURNAL = object_of(
    {
        "procedure": string,
        "run": object_of(),
        "settings": object_of(),
        "runs": list_of(object_of({"role": string, "folder": string})),
        "result": nullable(object_of()),
    },
    {"made": object_of(rest=string)},
)
_RESULTS = {  # only the fields that are read anywhere
    "correction": object_of({"before": _SCORES, "after": _SCORES}),
    "forgetting": object_of({"dropout": number}),
    "label-correction": object_of({"retrained": _SCORES}),
}

RunOne: TypeAlias = Callable[[Run, Path], Path]
"""(run, root) -> the folder of the finished run; `reweigh.lab.run.execute` is one."""

Settings: TypeAlias = Mapping[str, Value]


class Journal:
    """A procedure's folder, open for writing.

    Args:
        name: of the procedure.
        run: its argument.
        root: directory of its runs and of its own folder.
        settings: everything else that determines its result, as JSON values.
        run_one: executes a run.
    """

    def __init__(self, name: str, run: Run, root: Path, settings: Settings, run_one: RunOne) -> None:
        self.root, self._run, self._run_one = Path(root), run, run_one
        self.folder = self.root / folder_name(name, run, settings)
        self._content: dict[str, Any] = {
            "format": FORMAT,
            "procedure": name,
            "run": run.to_mapping(),
            "settings": _canonical(settings),
            "runs": [],
            "made": dict(read_journal(self.folder).made) if (self.folder / FILE).exists() else {},
            "result": None,
        }

    @property
    def is_done(self) -> bool:
        """Whether the procedure has a result and all of its runs.

        Raises:
            DataError: the data or labels have changed since.
        """
        if not (self.folder / FILE).exists():
            return False
        record = read_journal(self.folder)
        folders = [self.root / name for _, name in record.runs]
        if record.result is None or not all((folder / "result.json").exists() for folder in folders):
            return False
        # The first run has the original data and labels; those of the others were made from it.
        first = folders[0]
        check_same_data(first, gather(replace(read_header(first).run, data_root=self._run.data_root)))
        return True

    def path(self, name: str) -> Path:
        """Return the path of a file made between two runs; ValueError if a run's fields cannot hold it."""
        path = self.folder / name
        if len(path.as_posix()) > LONGEST_STRING or not path.as_posix().isprintable():
            raise ValueError(
                f"{path}: a run has to refer to this file, so its path must be printable and have at most "
                f"{LONGEST_STRING} characters, not {len(path.as_posix())}; use a directory of runs with a shorter path"
            )
        return path

    def run(self, role: str, run: Run, makes: str | None = None) -> Path:
        """Execute or resume one run of the procedure, and return its folder; a finished run is reused.

        Args:
            role: the run's name within the procedure.
            run: the run.
            makes: name of the `array` that is made from this run. An array left by a run on other data or labels is
                deleted, and a run that diverged is an error.

        Raises:
            DataError: the run is finished, but its data or labels have changed since.
        """
        folder, array = self.root / run.folder_name(), None if makes is None else self.path(makes)
        if (folder / "result.json").exists():
            check_same_data(folder, gather(run))
        elif array is not None:
            array.unlink(missing_ok=True)
        self._content["runs"].append({"role": role, "folder": folder.name})
        self._write()
        finished = self._run_one(run, self.root)
        if array is not None:
            require_converged(finished)
            header = read_header(finished)
            trained_on = f"{header.data_hash[:DIGITS]} {header.label_hash[:DIGITS]}"
            if self._content["made"].get(array.name, trained_on) != trained_on:
                array.unlink(missing_ok=True)
            self._content["made"][array.name] = trained_on
            self._write()
        return finished

    def array(self, name: str, make: Callable[[], NDArray[Any]]) -> tuple[str, str]:
        """Return the path and hash of an array in the procedure's folder; `make` is called if it does not exist."""
        path = self.path(name)
        if not path.exists():
            content = array_bytes(make())
            make_folder(self.folder)
            replace_file(path, lambda file: file.write(content))
        return path.as_posix(), file_hash(path.read_bytes())

    def finish(self, result: Mapping[str, Any]) -> Path:
        """Write the result, which marks the procedure as finished, and return its folder."""
        self._content["result"] = dict(result)
        self._write()
        return self.folder

    def _write(self) -> None:
        make_folder(self.folder)
        write_json(self.folder / FILE, self._content)


@dataclass(frozen=True)
class ProcedureRecord:
    """The content of procedure.json; runs are (role, folder name), the result is None until it is finished."""

    procedure: str
    run: Run
    settings: Mapping[str, Any]
    runs: tuple[tuple[str, str], ...]
    result: Mapping[str, Any] | None
    made: Mapping[str, Any] = field(default_factory=dict)


def read_journal(folder: Path) -> ProcedureRecord:
    """Read the record in a procedure's folder; DataError if it is missing, damaged or of another format."""
    path = Path(folder) / FILE
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise DataError(f"{path}: format is {content.get('format')!r}; this version reads {FORMAT}")
    check_schema(path, content, _JOURNAL)
    if content["procedure"] in _RESULTS:
        check_schema(path, content, object_of({"result": nullable(_RESULTS[content["procedure"]])}))
    try:
        run = Run.from_mapping(content["run"])
        _canonical(content["settings"])  # raises if a setting is invalid
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: {error}") from error
    record = ProcedureRecord(
        procedure=content["procedure"],
        run=run,
        settings=content["settings"],
        runs=tuple((entry["role"], entry["folder"]) for entry in content["runs"]),
        result=content["result"],
        made=content.get("made", {}),
    )
    if record.result is not None and not record.runs:
        raise DataError(f"{path}: has a result, but no runs")
    return record


def folder_name(name: str, run: Run, settings: Settings) -> str:
    """Return the name of a procedure's folder: its main choices, and the hash of all of them."""
    key = json.dumps({"procedure": name, "run": run.hash(), "settings": _canonical(settings)}, sort_keys=True)
    words = [name, *(re.sub(r"[^A-Za-z0-9.]+", "-", word).strip("-.")[-40:] for word in (run.data, run.net))]
    return f"{'-'.join(words)}-s{run.seed}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def _canonical(settings: Settings) -> dict[str, Value]:
    return {key: canonical(value) for key, value in settings.items()}


def final_and_best(folder: Path) -> dict[str, float | None]:
    """Return the final and best test accuracy of a finished run."""
    result = read_result(folder) or {}
    return {which: (result.get(which) or {}).get("test_accuracy") for which in ("final", "best")}


def require_converged(folder: Path) -> None:
    """Raise ValueError if the training of a finished run diverged."""
    if (step := (read_result(folder) or {}).get("diverged")) is not None:
        raise ValueError(f"{folder}: training diverged at iteration {step}; try a smaller lr")


def require_cce(run: Run, procedure: str) -> None:
    """Raise ValueError if a run is not plain cross entropy, for procedures that choose the loss themselves."""
    if run.weighting is None or parse(run.weighting) != parse("CCE"):
        actual = run.weighting or run.loss or run.method
        raise ValueError(f"{procedure} trains by plain cross entropy: weighting must be CCE, not {actual}")
    for name, value in (("normalise", run.normalise), ("taper", run.taper)):
        if value != "auto":
            raise ValueError(f"{procedure} trains by plain cross entropy: {name} must be 'auto', not {value!r}")
