"""Forked processes: with limits and captured output, or killed at a chosen system call.

The parent imports torch and the package once; a fork costs milliseconds. Linux on x86-64 only: a seccomp filter stops
the process at every system call that changes a file, and ptrace kills it there.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes, _LIBC.ptrace.restype = [ctypes.c_long] * 4, ctypes.c_long

# <sys/ptrace.h>, <linux/seccomp.h>, <linux/filter.h>
_TRACEME, _POKEUSER, _CONT, _SYSCALL, _SETOPTIONS, _GET_SYSCALL_INFO = 0, 6, 7, 24, 0x4200, 0x420E
_OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x80 | 0x100000  # TRACESYSGOOD, FORK, VFORK, CLONE, SECCOMP; EXITKILL
_SECCOMP_EVENT, _WALL, _RDX = 7, 0x40000000, 96
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _TRACE = 0x7FFF0000, 0x7FF00000

# system calls of x86-64 that change files; openat for writing and writes to other files than the terminal are added
_WRITE, _PWRITE, _OPENAT = 1, 18, 257
_CHANGES = {
    _PWRITE: "pwrite", 20: "writev", 40: "sendfile", 73: "flock", 74: "fsync", 75: "fdatasync", 76: "truncate",
    77: "ftruncate", 82: "rename", 83: "mkdir", 84: "rmdir", 85: "creat", 86: "link", 87: "unlink", 88: "symlink",
    258: "mkdirat", 263: "unlinkat", 264: "renameat", 285: "fallocate", 316: "renameat2", 326: "copy_file_range",
}  # fmt: skip
NAMES = {**_CHANGES, _WRITE: "write", _OPENAT: "open"}

MEMORY = 12 * 2**30  # of addresses, of which torch takes some


class Ended(NamedTuple):
    """How a process ended, and its output."""

    code: int | None  # None if a signal ended it
    signal: int
    output: str

    @property
    def hung(self) -> bool:
        """Whether it ran past its limit."""
        return self.signal == signal.SIGALRM


class Kill(NamedTuple):
    """A system call, by its number among those that change files, from 0; a write may be cut to a share first."""

    call: int
    share: float | None = None


class Traced(NamedTuple):
    """How a traced process ended, its calls so far, and whether it was killed."""

    ended: Ended
    calls: list[str]
    killed: bool


def fork(work: Callable[[], object], folder: Path, *, seconds: float = 120, memory: int | None = None) -> Ended:
    """Run `work` in a forked process with `folder` as its directory; its output goes to a file next to the folder."""
    pid = _start(work, folder, seconds, memory)
    _, status = os.waitpid(pid, 0)
    return _ended(status, folder)


def trace(work: Callable[[], object], folder: Path, kill: Kill | None, *, seconds: float = 120) -> Traced:
    """Run `work` like `fork`, and kill it and its children before the chosen system call, or within a write."""
    pid = _start(work, folder, seconds, None, traced=True)
    os.waitpid(pid, 0)
    _ptrace(_SETOPTIONS, pid, 0, _OPTIONS)
    _ptrace(_CONT, pid)
    calls: list[str] = []
    info = ctypes.create_string_buffer(88)
    killed = False
    while True:
        try:
            stopped, status = os.waitpid(-1, _WALL)
        except ChildProcessError:
            break
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            if stopped == pid:
                last = status
            continue
        number, event = os.WSTOPSIG(status), status >> 16
        with suppress(ProcessLookupError):  # it may die meanwhile
            if event == _SECCOMP_EVENT and not killed:
                _ptrace(_GET_SYSCALL_INFO, stopped, len(info), ctypes.addressof(info))
                words = memoryview(info.raw).cast("Q")
                call, size = words[3], words[6]
                if kill is not None and len(calls) == kill.call:
                    if call in (_WRITE, _PWRITE) and kill.share is not None and size > 1:
                        _ptrace(_POKEUSER, stopped, _RDX, int(kill.share * size))
                        _ptrace(_SYSCALL, stopped)
                        os.waitpid(stopped, _WALL)
                    os.killpg(pid, signal.SIGKILL)
                    killed = True
                calls.append(NAMES[call])
            passed = 0 if event or number in (signal.SIGTRAP, signal.SIGSTOP) else number
            _ptrace(_CONT, stopped, 0, passed)
    return Traced(_ended(last, folder), calls, killed)


def in_batches(
    one: Callable[[random.Random], tuple[str, str]],
    prepare: Callable[[], object],
    rng: random.Random,
    scratch: Path,
    *,
    batch: int,
) -> Iterator[tuple[str, str]]:
    """Yield the (outcome, details) of `one`, called many times in a forked process after `prepare`.

    An input that ends the process, or takes it over its limits, is "crashed" or "hung"; a new process follows.
    """
    folder = scratch / "batch"
    while True:
        seed = rng.randrange(2**32)

        def work(seed: int = seed) -> None:
            prepare()
            inputs = random.Random(seed)
            with Path("outcomes.jsonl").open("w", buffering=1) as file:
                for _ in range(batch):
                    file.write(json.dumps(one(inputs)) + "\n")

        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        ended = fork(work, folder, seconds=1200, memory=MEMORY)
        written = folder / "outcomes.jsonl"
        outcomes = [json.loads(line) for line in written.read_text().splitlines()] if written.exists() else []
        yield from ((outcome, f"seed {seed}: {why}") for outcome, why in outcomes)
        if len(outcomes) < batch:
            how = f"signal {ended.signal}, {ended.output[-300:]}"
            yield "hung" if ended.hung else "crashed", f"seed {seed}, input {len(outcomes)}: {how}"


def preload(work: Callable[[], object], folder: Path) -> None:
    """Import in this process what `work` imports, so that forks need not."""

    def listed() -> None:
        with suppress(SystemExit):
            work()
        Path("modules.txt").write_text("\n".join(sys.modules))

    ended = fork(listed, folder, seconds=600)
    if not (folder / "modules.txt").exists():
        raise SystemExit(ended.output)
    for name in (folder / "modules.txt").read_text().splitlines():
        if name not in sys.modules and name != "__mp_main__":
            with suppress(Exception):
                importlib.import_module(name)
    _commands()


def command(*arguments: str) -> Callable[[], None]:
    """Return the command line `reweigh arguments...` as a function."""

    return lambda: _commands()(list(arguments), prog_name="reweigh")


@cache
def _commands() -> Any:
    """Return the command line; `preload` builds it in the parent, which takes typer longer than most commands."""
    from typer.main import get_command

    from reweigh.lab.cli.app import app

    return get_command(app)


def _start(
    work: Callable[[], object], folder: Path, seconds: float, memory: int | None, *, traced: bool = False
) -> int:
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        output = os.open(folder.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.setitimer(signal.ITIMER_REAL, seconds)  # the default action ends the process, wherever it is
        if traced:
            _ptrace(_TRACEME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            _install_filter()
        work()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(code)


def _ended(status: int, folder: Path) -> Ended:
    output = folder.with_suffix(".out").read_text(errors="replace")
    if os.WIFSIGNALED(status):
        return Ended(None, os.WTERMSIG(status), output)
    return Ended(os.WEXITSTATUS(status), 0, output)


def _ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> None:
    if _LIBC.ptrace(request, pid, address, data) == -1 and (code := ctypes.get_errno()):
        raise OSError(code, os.strerror(code))


def _install_filter() -> None:
    """Stop at the calls of `_CHANGES`, at openat with a flag for writing, and at writes to files above 2."""
    n = len(_CHANGES)
    rules = [  # code, instructions to skip if true and if false, operand
        (_LOAD, 0, 0, 0),  # the number of the call
        (_EQUAL, 0, 2, _OPENAT),
        (_LOAD, 0, 0, 32),  # its third argument
        (_ANY_BIT, n + 4, n + 3, os.O_WRONLY | os.O_RDWR | os.O_CREAT),
        (_EQUAL, 0, 2, _WRITE),
        (_LOAD, 0, 0, 16),  # its first argument
        (_AT_LEAST, n + 1, n, 3),
        *((_EQUAL, n - i, 0, number) for i, number in enumerate(_CHANGES)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _TRACE),
    ]
    raw = b"".join(
        code.to_bytes(2, "little") + bytes([if_true, if_false]) + k.to_bytes(4, "little")
        for code, if_true, if_false, k in rules
    )
    filters = ctypes.create_string_buffer(raw)
    program = len(rules).to_bytes(8, "little") + ctypes.addressof(filters).to_bytes(8, "little")
    if _LIBC.prctl(38, 1, 0, 0, 0) or _LIBC.prctl(22, 2, program, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp is not available")
