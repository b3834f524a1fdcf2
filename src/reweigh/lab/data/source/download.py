"""One file from one address: resumed where it broke off, checked, and only then given its name."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reweigh.errors import DataError

Progress = Callable[[int, int | None], None]
"""Called with (bytes so far, bytes in all or None) after every chunk."""

MAX_BYTES = 2**35
"""The most that is taken from an address whose size nobody published."""

_CHUNK = 2**18


@dataclass(frozen=True)
class Remote:
    """A file somewhere else.

    Args:
        url: http or https.
        size: its length in bytes, or None where nobody published it.
        md5: its digest, or None likewise.
    """

    url: str
    size: int | None = None
    md5: str | None = None

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url must start with http:// or https://, not {self.url!r}")

    def __str__(self) -> str:
        facts = [f"{self.size} bytes"] * (self.size is not None) + [f"md5 {self.md5}"] * (self.md5 is not None)
        return self.url + (f" ({', '.join(facts)})" if facts else "")


def fetch(remote: Remote, target: Path, progress: Progress | None = None, timeout: float = 30.0) -> Path:
    """Download `remote` to `target` and return it; a `target` that is there already is checked, not fetched.

    The bytes go to `target` + ".part". A part left by an earlier attempt is continued where the server allows
    it (HTTP range requests) and started again where it does not. Size and digest are checked before the
    rename; a file that fails is removed, because no continuation could mend it. Without a network the error
    says what to download by other means and where to put it.
    """
    if target.exists():
        check(remote, target)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    try:
        _transfer(remote, part, progress, timeout)
    except (OSError, http.client.HTTPException) as error:  # URLError and time-outs are OSErrors
        reason = getattr(error, "reason", None) or error
        raise DataError(
            f"{target}: cannot download {remote.url}: {reason}. Try again (what has arrived is kept), "
            f"or download {remote} by other means, put it at {target} and run this again"
        ) from error
    try:
        check(remote, part)
    except DataError:
        part.unlink()
        raise
    part.replace(target)
    return target


def check(remote: Remote, path: Path) -> None:
    """Refuse a local copy whose size or digest is not the published one."""
    size = path.stat().st_size
    if remote.size is not None and size != remote.size:
        raise DataError(f"{path}: {size} bytes, but {remote.url} has {remote.size}; delete it and try again")
    if remote.md5 is None:
        return
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != remote.md5:
        raise DataError(f"{path}: md5 {digest.hexdigest()}, but {remote.url} has {remote.md5}; delete it and try again")


def _transfer(remote: Remote, part: Path, progress: Progress | None, timeout: float) -> None:
    limit = MAX_BYTES if remote.size is None else remote.size
    have = part.stat().st_size if part.exists() else 0
    if have == remote.size:
        return
    with _open(remote.url, have if have < limit else 0, timeout) as reply:
        continued = reply.status == http.client.PARTIAL_CONTENT
        span = str(reply.headers["Content-Range"])
        if continued and not span.startswith(f"bytes {have}-"):
            raise OSError(f"the server answered with another range than bytes {have}-: {span}")
        done = have if continued else 0
        length = str(reply.headers["Content-Length"])
        total = done + int(length) if length.isdigit() else remote.size
        with part.open("ab" if continued else "wb") as file:
            while chunk := reply.read(_CHUNK):
                done += file.write(chunk)
                if done > limit:
                    raise OSError(f"the server sends more than {limit} bytes")
                if progress is not None:
                    progress(done, total)
            file.flush()
            os.fsync(file.fileno())
    if total is not None and done < total:
        raise OSError(f"the connection ended after {done} of {total} bytes")


def _open(url: str, start: int, timeout: float) -> http.client.HTTPResponse:
    """The reply from byte `start` on, or from the beginning where the server has nothing (more) there."""
    request = urllib.request.Request(url, headers={"User-Agent": "reweigh"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        reply = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if start and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return _open(url, 0, timeout)
        raise
    assert isinstance(reply, http.client.HTTPResponse)  # what urllib gives for http and https
    return reply
