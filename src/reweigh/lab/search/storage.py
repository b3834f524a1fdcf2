"""The database of a study: an SQLite file that many processes can share, or any database that Optuna supports."""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import optuna
import sqlalchemy
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage, get_storage
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, InterfaceError, NoSuchModuleError, OperationalError, SQLAlchemyError

from reweigh.lab.record.files import remove_abandoned

T = TypeVar("T")

_OPERATIONS = [name for name, value in vars(BaseStorage).items() if callable(value) and not name.startswith("_")]
PAUSE = 1.0  # seconds between attempts to reach a database that does not answer
BUSY_TIMEOUT = 120  # seconds that a transaction waits for another
ATTEMPTS = 5  # at creating tables, which another process may be creating too


def sqlite_url(path: Path) -> str:
    """Return the URL of an SQLite file."""
    return f"sqlite:///{path.resolve().as_posix()}"


def hide_password(url: str) -> str:
    """Return a database URL without its password.

    >>> hide_password("postgresql://me:secret@host/studies")
    'postgresql://me:***@host/studies'
    """
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "(invalid URL)"


def is_sqlite(url: str) -> bool:
    """Return whether a URL is that of an SQLite file."""
    return url.startswith("sqlite")


def open_storage(url: str) -> RDBStorage:
    """Open the database and create missing tables; raise ConnectionError if that fails.

    SQLite is opened with a write-ahead log, so that readers never wait for writers, and with a busy timeout. Every
    transaction begins as a writing one: SQLite has no row locks, and two workers that read before they write would
    claim the same trial.
    """
    try:
        backend = make_url(url).get_backend_name()
    except ArgumentError:
        raise ValueError("storage is not a database URL; write sqlite:///FILE or postgresql://USER@HOST/NAME") from None
    if backend == "sqlite" and (parent := _folder(url)) is not None and not parent.is_dir():
        raise ConnectionError(
            f"the study's database {hide_password(url)} cannot be opened: the folder {parent} does not exist"
        )
    for left in reversed(range(ATTEMPTS)):
        try:
            return _sqlite(url) if backend == "sqlite" else RDBStorage(url, {"pool_pre_ping": True})
        except (NoSuchModuleError, ImportError) as error:
            raise ValueError(
                f"storage is {hide_password(url)}; the driver for {backend} is not installed ({error})"
            ) from error
        except (SQLAlchemyError, StorageInternalError, RuntimeError) as error:
            if not left or not _is_transient(error):
                raise ConnectionError(_message("opened", url, error)) from error
            time.sleep(random.uniform(0.1, 1.0))
    raise AssertionError("the last attempt returns or raises")


@contextmanager
def use_database(url: str, patience: float) -> Iterator[BaseStorage]:
    """Open the database for a block; its errors within the block become ConnectionError with a readable message.

    While the server does not answer, the opening and every operation are repeated. An operation that succeeded without
    an answer is done twice, which the rules of the slots allow for. An SQLite file has no server, so its errors are
    raised at once.

    Args:
        url: of the database.
        patience: seconds to repeat an operation.
    """
    if is_sqlite(url):
        patience = 0.0
    opened = repeat(lambda: open_storage(url), patience)
    storage = get_storage(opened)
    for name in _OPERATIONS:
        operation = getattr(storage, name)
        setattr(storage, name, lambda *given, do=operation, **named: repeat(lambda: do(*given, **named), patience))
    try:
        with database_errors(url):
            yield storage
    finally:
        opened.engine.dispose()


def repeat(operation: Callable[[], T], patience: float) -> T:
    """Return the result of an operation, which is repeated for `patience` seconds while the database is unreachable."""
    end = time.monotonic() + patience
    while True:
        try:
            return operation()
        except (SQLAlchemyError, StorageInternalError, ConnectionError) as error:
            if time.monotonic() >= end or not _is_unreachable(error):
                raise
        time.sleep(PAUSE)


def _is_unreachable(error: Exception) -> bool:
    """Return whether the server did not answer, or ended the connection."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OperationalError | InterfaceError):
        cause = cause.__cause__
    return cause is not None


@contextmanager
def database_errors(url: str) -> Iterator[None]:
    """Convert errors of the database within the block to ConnectionError with a readable message."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        raise ConnectionError(_message("used", url, error)) from error


def _message(action: str, url: str, error: BaseException) -> str:
    """Return the driver's own message, which SQLAlchemy and Optuna wrap."""
    if isinstance(error, StorageInternalError) and error.__cause__ is not None:
        error = error.__cause__
    reason = " ".join(str(getattr(error, "orig", None) or error).split())[:300]
    return f"the study's database {hide_password(url)} cannot be {action}: {reason}"


def _sqlite(url: str) -> RDBStorage:
    name = make_url(url).database
    if name and name != ":memory:" and not name.startswith("file:"):
        _create(Path(name))
    # isolation_level None: transactions are begun by the listener below, not by the driver
    storage = RDBStorage(url, {"connect_args": {"timeout": BUSY_TIMEOUT, "isolation_level": None}})
    sqlalchemy.event.listen(storage.engine, "connect", _prepare)
    sqlalchemy.event.listen(storage.engine, "begin", _begin)
    storage.engine.dispose()  # connections made before the listeners
    return storage


def _create(path: Path) -> None:
    """Create the tables in another file first: SQLite commits each, and Optuna adds no index that a kill left out.

    If another process is faster, its database stays.
    """
    remove_abandoned(path)
    if path.exists():
        return
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        RDBStorage(f"sqlite:///{temporary}").engine.dispose()
        with suppress(OSError):  # it exists meanwhile, or the file system has no links
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _prepare(connection: Any, _record: Any) -> None:
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT * 1000}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")


def _begin(connection: Any) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _folder(url: str) -> Path | None:
    name = make_url(url).database
    return Path(name).parent if name and name != ":memory:" else None


def _is_transient(error: Exception) -> bool:
    """Return whether another attempt may succeed, as after a race with another process."""
    text = str(error).lower()
    transient = ("already exists", "locked", "duplicate key", "unique constraint", "deadlock", "incompatible")
    return any(phrase in text for phrase in transient)


def silence_optuna() -> None:
    """Show only warnings of Optuna in this process; a library uses `optuna_silenced`."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@contextmanager
def optuna_silenced() -> Iterator[None]:
    """Show only warnings of Optuna within the block, and restore its verbosity afterwards."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(before, optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
