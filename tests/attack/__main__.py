"""Attack the package for a chosen time, and print what came of it.

    make test-attack MINUTES=10 SEED=0
    PYTHONPATH=tests python -m attack --minutes 10 --only "kill train" "losses, plain"

Exits with 1 if anything was lost, executed, silent, wrong or hung. The same seed gives the same attacks.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported, here or by torch

import torch

from attack.folders import folders
from attack.hostile import hostile
from attack.kills import VICTIMS, kills
from attack.losses import losses
from attack.readers import READERS, readers

Attack = Callable[[random.Random, Path], Iterator[tuple[str, str]]]

ATTACKS: dict[str, tuple[float, Attack]] = {  # with a share of the time
    "losses, plain": (1, partial(losses, "plain")),
    "losses, Triton": (2, partial(losses, "Triton")),
    **{name: (0.5, partial(readers, name)) for name in READERS},
    "hostile files": (2, hostile),
    **{f"kill {name}": (2, partial(kills, name)) for name in VICTIMS},
    "damage a finished run": (3, partial(folders, "finished")),
    "damage an interrupted run": (3, partial(folders, "interrupted")),
}
GOOD = ("recovered", "refused", "named", "same", "equal", "read", "plain")
SHOWN = 5  # failures of each attack


def main() -> int:
    """Run the attacks and print their table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="time for all attacks together")
    parser.add_argument("--cases", type=int, help="cases of each attack, instead of a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=list(ATTACKS), metavar="ATTACK", help=", ".join(ATTACKS))
    options = parser.parse_args()
    if unknown := set(options.only) - set(ATTACKS):
        parser.error(f"no attack is named {min(unknown)!r}")
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        parser.error("needs Linux on x86-64")
    torch.set_num_threads(1)
    whole = sum(share for name, (share, _) in ATTACKS.items() if name in options.only)
    tallies: dict[str, Counter[str]] = {}
    memory = Path("/dev/shm")
    for name in options.only:
        share, attack = ATTACKS[name]
        scratch = Path(tempfile.mkdtemp(prefix="attack-", dir=memory if memory.is_dir() else None))
        seconds = float("inf") if options.cases else 60 * options.minutes * share / whole
        try:
            cases = attack(random.Random(f"{options.seed} {name}"), scratch)
            tallies[name] = tally(name, cases, seconds, options.cases or sys.maxsize)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    print(table(tallies, options.seed))
    return int(any(tallied.keys() - set(GOOD) for tallied in tallies.values()))


def tally(name: str, cases: Iterator[tuple[str, str]], seconds: float, most: int) -> Counter[str]:
    """Count the outcomes, and print the first failures."""
    counts: Counter[str] = Counter()
    begun = time.monotonic()
    for outcome, details in cases:
        counts[outcome] += 1
        failures = sum(count for kind, count in counts.items() if kind not in GOOD)
        if outcome not in GOOD and failures <= SHOWN:
            print(f"{outcome}: {details}\n", flush=True)
        if counts.total() >= most or time.monotonic() - begun > seconds:
            break
    print(f"{name}: {counts.total():,} cases in {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return counts


def table(tallies: dict[str, Counter[str]], seed: int) -> str:
    """Return the outcomes of every attack as a table in Markdown."""
    lines = [f"| attack, seed {seed} | cases | good | bad |", "|---|---:|---|---|"]
    for name, counts in tallies.items():
        good, bad = (
            ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()) if (kind in GOOD) == wanted)
            for wanted in (True, False)
        )
        lines.append(f"| {name} | {counts.total():,} | {good} | {bad or 'none'} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
