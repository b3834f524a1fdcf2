"""Damage one file of a run folder, finished or interrupted, and run the commands that read or resume it.

A command must name the damage, refuse the file, or give what it gives for the intact folder. It must not follow a link,
wait for a pipe, fill the memory, print an escape sequence, or fail with a traceback.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attack.kills import VICTIMS, contents, different
from attack.processes import MEMORY, Ended, Kill, command, fork, preload, trace

SECRET = "the content of a file outside the run folder\n"
HUGE = 2**40
LIMIT = 30.0  # seconds; the commands together take one

FINISHED = {
    "show": ("show", "{run}", "--rows", "0"),
    "list": ("runs", "list", "runs"),
    "report": ("report", "{run}", "-o", "report.html"),
    "suspects": ("suspects", "{run}", "--method", "mean-p", "-o", "suspects.csv"),
    "aum": ("suspects", "{run}", "--method", "aum", "-o", "aum.csv"),
    "predict": ("predict", "{run}", "inputs.npz", "--device", "cpu", "-o", "predicted.csv"),
    "best": ("predict", "{run}", "inputs.npz", "--device", "cpu", "--best", "-o", "best.csv"),
    "pack": ("runs", "pack", "runs.tar.gz"),
}
INTERRUPTED = {"show": FINISHED["show"], "resume": ("resume", "{run}")}


class Shown(NamedTuple):
    """What a command printed and wrote, and its exit code; None if it did not end."""

    code: int | None
    text: str
    written: bytes | None


def flip(path: Path, rng: random.Random) -> None:
    raw = bytearray(path.read_bytes())
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)


def cut(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def empty(path: Path, rng: random.Random) -> None:
    os.truncate(path, 0)


def remove(path: Path, rng: random.Random) -> None:
    path.unlink()


def garbage(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(path.stat().st_size))


def zeros(path: Path, rng: random.Random) -> None:
    raw = bytearray(path.read_bytes())
    start = rng.randrange(len(raw))
    raw[start:] = bytes(len(raw) - start)
    path.write_bytes(raw)


def longer(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randrange(1, 5000)))


def link(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to("../" * len(path.relative_to(path.parents[2]).parts) + "../outside.txt")


def pipe(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def directory(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def huge(path: Path, rng: random.Random) -> None:
    os.truncate(path, HUGE)


def exchange(path: Path, rng: random.Random) -> None:
    others = sorted(other for other in path.parent.iterdir() if other.is_file() and other != path)
    path.write_bytes(rng.choice(others).read_bytes())


def value(path: Path, rng: random.Random) -> None:
    """Replace one value of a JSON file, or of a line of one."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    i = rng.randrange(len(lines))
    content = json.loads(lines[i])
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, item in list(node.items() if isinstance(node, dict) else enumerate(node)):
            if key != "digest":
                places.append((node, key))
            if isinstance(item, dict | list):
                walk(item)

    walk(content)
    node, key = rng.choice(places)
    nested: Any = []
    for _ in range(200):
        nested = [nested]
    node[key] = rng.choice(
        [None, -1, 10**30, 1e308, True, "", "\x1b[31mred\x1b[0m\r\n", "../../outside.txt", {}, [], nested, "a" * 10**6]
    )
    lines[i] = json.dumps(content, indent=None if path.suffix == ".jsonl" else 2)
    path.write_text("\n".join(lines) + "\n")


MUTATIONS: list[Callable[[Path, random.Random], None]] = [
    *(flip, flip, cut, empty, remove, garbage, zeros, longer, link, pipe, directory, huge, exchange, value, value)
]


def folders(state: str, rng: random.Random, scratch: Path) -> Iterator[tuple[str, str]]:
    """Yield (outcome, details) of each damaged folder; state is "finished" or "interrupted"."""
    start = scratch / "start"
    start.mkdir()
    train = VICTIMS["train"].work
    preload(train, start)
    (start / "modules.txt").unlink()
    (run,) = (path for path in (start / "runs").iterdir() if path.is_dir())
    expected = contents(run)
    if state == "interrupted":
        calls = trace(train, _fresh(scratch / "traced"), None).calls
        shutil.rmtree(start / "runs")
        trace(train, start, Kill(len(calls) // 2))  # two checkpoints and two rows later
    np.savez(start / "inputs.npz", x=np.zeros((3, 64), np.float32))
    (start.parent / "outside.txt").write_text(SECRET)
    session = _session(run, FINISHED if state == "finished" else INTERRUPTED)
    preload(session, _copy(start, scratch / "preload"))
    intact = _shown(fork(session, _copy(start, scratch / "case")), scratch / "case")
    if any(shown.code for shown in intact.values()):
        raise SystemExit(f"the intact folder: {intact}")
    names = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file() and path.name != ".lock")
    while True:
        folder = _copy(start, scratch / "case")
        name, mutation = rng.choice(names), rng.choice(MUTATIONS)
        if mutation is value and not name.endswith((".json", ".jsonl")):
            mutation = flip
        mutation(folder / "runs" / run.name / name, rng)
        ended = fork(session, folder, seconds=LIMIT, memory=MEMORY)
        shown = _shown(ended, folder)
        found = [_judge(part, intact[key], name, run.name) for key, part in shown.items()]
        if ended.hung:
            found.append("hung")
        elif len(shown) < len(intact) or any(part.code is None for part in shown.values()):
            found.append("crashed")
        if (scratch / "outside.txt").read_text() != SECRET or len(list(scratch.iterdir())) > 9:
            found.append("escaped")
        changed: list[str] = []
        if state == "interrupted" and "resume" in shown and shown["resume"].code == 0:
            changed = different(contents(folder / "runs" / run.name), expected)
            # it may resume from an earlier checkpoint, and say so
            found = [*found, "silent"] if changed else ["recovered", *(kind for kind in found if kind != "silent")]
        if (state == "interrupted" and "refused" in found) or "resumable" in getattr(shown.get("list"), "text", ""):
            # nothing tells `show` how many rows there were; without a result, the run is listed as unfinished
            found = ["refused", *(kind for kind in found if kind != "silent")]
        outcome = next(kind for kind in ORDER if kind in found)
        details = "; ".join([*changed, *(f"{key}: {part.text[-300:]}" for key, part in shown.items())])
        yield outcome, f"{state} run, {mutation.__name__} of {name}: {details}"


# the worst first; those from "refused" on are good
ORDER = (
    "escaped",
    "hung",
    "crashed",
    "terminal",
    "leaked",
    "silent",
    "unnamed",
    "refused",
    "named",
    "recovered",
    "same",
)


def _judge(shown: Shown, intact: Shown, name: str, run: str) -> str:
    if "Traceback" in shown.text:
        return "crashed"
    if "\x1b" in shown.text:
        return "terminal"
    if SECRET.strip() in shown.text or (shown.written is not None and SECRET.strip().encode() in shown.written):
        return "leaked"
    is_named = Path(name).name in shown.text or ("/" in name and f"/{Path(name).parts[0]}" in shown.text)
    if shown.code:
        return "refused" if is_named or run in shown.text else "unnamed"
    if is_named:
        return "named"
    return "same" if shown == intact else "silent"


def _session(run: Path, commands: dict[str, tuple[str, ...]]) -> Callable[[], None]:
    def work() -> None:
        for key, arguments in commands.items():
            code = 0
            print(f"\0{key}\0", end="", flush=True)
            try:
                command(*(part.format(run=f"runs/{run.name}") for part in arguments))()
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else int(error.code is not None)
            except BaseException:
                traceback.print_exc()
                code = 70
            sys.stdout.flush()
            print(f"\0{code}", end="", flush=True)

    return work


def _shown(ended: Ended, folder: Path) -> dict[str, Shown]:
    shown = {}
    for key, text, code in re.findall(r"\0([^\0]+)\0([^\0]*)(?:\0(\d+)(?=\0|$))?", ended.output):
        arguments = FINISHED.get(key, ())
        path = folder / arguments[-1] if "-o" in arguments else None
        written = path.read_bytes() if path is not None and path.exists() else None
        shown[key] = Shown(int(code) if code else None, re.sub(r"\d+\.\d it/s, [\d:]+ left", "", text), written)
    return shown


def _fresh(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _copy(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target
