"""The folder of a procedure: which runs it is made of, what it left between them, and what came of it.

    runs/forgetting-digits-mlp-s0-0123456789ab/procedure.json

        {"format": 1, "procedure": "forgetting", "run": {...}, "settings": {"rates": [...]},
         "runs": [{"role": "dropout 0.2", "folder": "digits-mlp-CCE-..."}, ...],
         "made": {"labels.npy": "..."},                        which data and labels the run had that it was made from
         "result": {...}}                                      null until the procedure is done

The runs lie beside it, like any others. A procedure that was cut short is carried out again: its finished runs are
taken as they are, the one that was cut short goes on from its checkpoint, and every byte is as without the break.
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
from reweigh.noise.arrays import DIGITS, array_bytes, file_hash

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
_RESULTS = {  # as far as anybody looks into them
    "correction": object_of({"before": _SCORES, "after": _SCORES}),
    "forgetting": object_of({"dropout": number}),
    "label-correction": object_of({"retrained": _SCORES}),
}

CarryOut: TypeAlias = Callable[[Run, Path], Path]
"""(run, root) -> the folder of the finished run; `reweigh.lab.run.execute` is one."""

Settings: TypeAlias = Mapping[str, Value]


class Journal:
    """A procedure's folder, open for writing.

    Args:
        name: of the procedure.
        run: what it was given.
        root: where run folders lie, and its own.
        settings: everything else that decides its result, in values that JSON has.
        carry_out: executes a run.
    """

    def __init__(self, name: str, run: Run, root: Path, settings: Settings, carry_out: CarryOut) -> None:
        self.root, self._run, self._carry_out = Path(root), run, carry_out
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
        """Whether the procedure has its result already, and all runs it is of.

        Refuses, with DataError, a result of other data or labels than there are now.
        """
        if not (self.folder / FILE).exists():
            return False
        account = read_journal(self.folder)
        folders = [self.root / name for _, name in account.runs]
        if account.result is None or not all((folder / "result.json").exists() for folder in folders):
            return False
        # the first has the data and labels as they were given; whatever else a run had, was made from it
        first = folders[0]
        check_same_data(first, gather(replace(read_header(first).run, data_root=self._run.data_root)))
        return True

    def path(self, name: str) -> Path:
        """Where a file between two runs lies; refused where the second run, which has to name it, could not."""
        path = self.folder / name
        if len(path.as_posix()) > LONGEST_STRING or not path.as_posix().isprintable():
            raise ValueError(
                f"{path}: a run has to name this file, and a text in a run is printable and has at most "
                f"{LONGEST_STRING} characters, not {len(path.as_posix())}; give a folder of runs with a shorter path"
            )
        return path

    def run(self, role: str, run: Run, makes: str | None = None) -> Path:
        """Carry out one run of the procedure, or on with it, and return its folder.

        A finished one is taken as it is, unless it was trained on other data or labels than there are now.

        Args:
            role: what the run is in the procedure.
            run: the run.
            makes: the name of the `array` that is made from it: what an earlier attempt left there of another
                training goes, whoever has carried this one out, and a run that diverged is refused.
        """
        folder, left = self.root / run.folder_name(), None if makes is None else self.path(makes)
        if (folder / "result.json").exists():
            check_same_data(folder, gather(run))
        elif left is not None:
            left.unlink(missing_ok=True)
        self._content["runs"].append({"role": role, "folder": folder.name})
        self._write()
        made = self._carry_out(run, self.root)
        if left is not None:
            require_converged(made)
            header = read_header(made)
            trained_on = f"{header.data_hash[:DIGITS]} {header.label_hash[:DIGITS]}"
            if self._content["made"].get(left.name, trained_on) != trained_on:
                left.unlink(missing_ok=True)
            self._content["made"][left.name] = trained_on
            self._write()
        return made

    def array(self, name: str, make: Callable[[], NDArray[Any]]) -> tuple[str, str]:
        """The path of a .npy in the procedure's folder and its hash; `make` is only called where it is not there."""
        path = self.path(name)
        if not path.exists():
            content = array_bytes(make())
            make_folder(self.folder)
            replace_file(path, lambda file: file.write(content))
        return path.as_posix(), file_hash(path.read_bytes())

    def finish(self, result: Mapping[str, Any]) -> Path:
        """Write the result: from now on the procedure is done. Returns its folder."""
        self._content["result"] = dict(result)
        self._write()
        return self.folder

    def _write(self) -> None:
        make_folder(self.folder)
        write_json(self.folder / FILE, self._content)


@dataclass(frozen=True)
class Account:
    """What procedure.json says: the runs are (role, folder name), the result is None until the procedure is done."""

    procedure: str
    run: Run
    settings: Mapping[str, Any]
    runs: tuple[tuple[str, str], ...]
    result: Mapping[str, Any] | None
    made: Mapping[str, Any] = field(default_factory=dict)


def read_journal(folder: Path) -> Account:
    """The account of a procedure's folder; DataError where it is missing, damaged or of another format."""
    path = Path(folder) / FILE
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise DataError(f"{path}: format is {content.get('format')!r}; this version reads {FORMAT}")
    check_schema(path, content, _JOURNAL)
    if content["procedure"] in _RESULTS:
        check_schema(path, content, object_of({"result": nullable(_RESULTS[content["procedure"]])}))
    try:
        run = Run.from_mapping(content["run"])
        _canonical(content["settings"])  # refuses what no setting can be
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: {error}") from error
    account = Account(
        procedure=content["procedure"],
        run=run,
        settings=content["settings"],
        runs=tuple((entry["role"], entry["folder"]) for entry in content["runs"]),
        result=content["result"],
        made=content.get("made", {}),
    )
    if account.result is not None and not account.runs:
        raise DataError(f"{path}: has a result, but no runs that it is of")
    return account


def folder_name(name: str, run: Run, settings: Settings) -> str:
    """The procedure's folder: the main choices for people, the hash of all of them for certainty."""
    key = json.dumps({"procedure": name, "run": run.hash(), "settings": _canonical(settings)}, sort_keys=True)
    words = [name, *(re.sub(r"[^A-Za-z0-9.]+", "-", word).strip("-.")[-40:] for word in (run.data, run.net))]
    return f"{'-'.join(words)}-s{run.seed}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def _canonical(settings: Settings) -> dict[str, Value]:
    return {key: canonical(value) for key, value in settings.items()}


def accuracies(folder: Path) -> dict[str, float | None]:
    """Final and best test accuracy of a finished run."""
    result = read_result(folder) or {}
    return {which: (result.get(which) or {}).get("test_accuracy") for which in ("final", "best")}


def require_converged(folder: Path) -> None:
    """Refuse a finished run whose training diverged: nothing can be built on it."""
    if (step := (read_result(folder) or {}).get("diverged")) is not None:
        raise ValueError(f"{folder}: training diverged at iteration {step}; try a smaller lr")


def require_cce(run: Run, procedure: str) -> None:
    """Refuse a run that is not plain cross entropy, where the procedure itself says what teaches."""
    if run.weighting is None or parse(run.weighting) != parse("CCE") or run.normalise != "auto" or run.taper != "auto":
        taught = run.weighting or run.loss or run.method
        raise ValueError(
            f"{procedure} teaches by cross entropy and its own corrections: weighting must be CCE, not {taught}"
        )
