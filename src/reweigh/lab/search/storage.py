"""Where a study lies: an SQLite file that many processes can share, or any database URL that Optuna takes."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

BUSY = 120  # seconds that a transaction waits for another one's end
TRIES = 5  # at making tables that another process may be making, too


def sqlite_url(path: Path) -> str:
    """The URL of an SQLite file."""
    return f"sqlite:///{path.resolve().as_posix()}"


def shown(url: str) -> str:
    """A database URL without its password.

    >>> shown("postgresql://me:secret@host/studies")
    'postgresql://me:***@host/studies'
    """
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "the URL given"


def is_sqlite(url: str) -> bool:
    """Whether a URL is that of an SQLite file."""
    return url.startswith("sqlite")


def open_storage(url: str) -> RDBStorage:
    """The database, its tables made where they are missing; ConnectionError where it cannot be reached.

    SQLite is opened with a write-ahead log, so that reading never waits for writing, and with a busy timeout. Every
    transaction begins as a writing one: SQLite has no row locks, and two workers that first read and then wrote would
    both take the same trial.
    """
    try:
        backend = make_url(url).get_backend_name()
    except ArgumentError:
        raise ValueError("storage is no database URL; write sqlite:///FILE or postgresql://USER@HOST/NAME") from None
    if backend == "sqlite" and (parent := _folder(url)) is not None and not parent.is_dir():
        raise ConnectionError(f"the study's database {shown(url)} cannot be opened: there is no folder {parent}")
    for left in reversed(range(TRIES)):
        try:
            return _sqlite(url) if backend == "sqlite" else RDBStorage(url, {"pool_pre_ping": True})
        except (NoSuchModuleError, ImportError) as error:
            raise ValueError(f"storage is {shown(url)}; the driver for {backend} is not installed ({error})") from error
        except (SQLAlchemyError, StorageInternalError, RuntimeError) as error:
            if not left or _is_hopeless(error):
                raise ConnectionError(_sentence("opened", url, error)) from error
            time.sleep(random.uniform(0.1, 1.0))
    raise AssertionError("the last try returns or raises")


@contextmanager
def spoken(url: str) -> Iterator[None]:
    """Say in a sentence what goes wrong with the database meanwhile: ConnectionError, as for one that is not there."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        raise ConnectionError(_sentence("used", url, error)) from error


def _sentence(done: str, url: str, error: BaseException) -> str:
    """What went wrong, in the driver's own words, which SQLAlchemy and then Optuna wrap up."""
    if isinstance(error, StorageInternalError) and error.__cause__ is not None:
        error = error.__cause__
    reason = " ".join(str(getattr(error, "orig", None) or error).split())[:300]
    return f"the study's database {shown(url)} cannot be {done}: {reason}"


def _sqlite(url: str) -> RDBStorage:
    # isolation_level None: the driver begins no transaction on its own, the listener below does.
    storage = RDBStorage(url, {"connect_args": {"timeout": BUSY, "isolation_level": None}})
    sqlalchemy.event.listen(storage.engine, "connect", _prepare)
    sqlalchemy.event.listen(storage.engine, "begin", _begin)
    storage.engine.dispose()  # connections from before the listeners
    return storage


def _prepare(connection: Any, _record: Any) -> None:
    connection.execute(f"PRAGMA busy_timeout = {BUSY * 1000}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")


def _begin(connection: Any) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _folder(url: str) -> Path | None:
    name = make_url(url).database
    return Path(name).parent if name and name != ":memory:" else None


def _is_hopeless(error: Exception) -> bool:
    """Whether trying again cannot help: the server is not there, or the file is something else."""
    text = str(error).lower()
    hopes = ("already exists", "locked", "duplicate key", "unique constraint", "deadlock", "incompatible")
    return not any(hope in text for hope in hopes)


def quiet() -> None:
    """Only warnings from Optuna: a process of its own may say that, a library may not."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@contextmanager
def quietly() -> Iterator[None]:
    """Only warnings from Optuna meanwhile: what is its caller's afterwards is as it was."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(before, optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
