"""Download a file: resume a partial download, and verify it before renaming."""

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
"""Called with (bytes so far, total bytes or None) after every chunk."""

MAX_BYTES = 2**35
"""The limit for a file without a published size."""

_CHUNK = 2**18


@dataclass(frozen=True)
class Remote:
    """A file to download.

    Args:
        url: http or https.
        size: its size in bytes, or None if not published.
        md5: its digest, or None if not published.
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
    """Download `remote` to `target` and return it; an existing `target` is only verified.

    The data are written to `target` + ".part", and an earlier part is resumed if the server supports range requests.
    Size and digest are verified before the rename; a file that fails is removed. Without a network the error says what
    to download by other means and where to put it.
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
            f"{target}: cannot download {remote.url}: {reason}. Try again (the partial file is kept), "
            f"or download {remote} by other means, save it as {target} and run this again"
        ) from error
    try:
        check(remote, part)
    except DataError:
        part.unlink()
        raise
    part.replace(target)
    return target


def check(remote: Remote, path: Path) -> None:
    """Raise DataError if a local copy does not have the published size or digest."""
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
    with _open(remote.url, have if have < limit else 0, timeout) as response:
        continued = response.status == http.client.PARTIAL_CONTENT
        span = str(response.headers["Content-Range"])
        if continued and not span.startswith(f"bytes {have}-"):
            raise OSError(f"the server sent another range than bytes {have}-: {span}")
        done = have if continued else 0
        length = str(response.headers["Content-Length"])
        total = done + int(length) if length.isdigit() else remote.size
        with part.open("ab" if continued else "wb") as file:
            while chunk := response.read(_CHUNK):
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
    """Return the response from byte `start` on, or from the beginning if the server has no such range."""
    request = urllib.request.Request(url, headers={"User-Agent": "reweigh"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if start and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return _open(url, 0, timeout)
        raise
    assert isinstance(response, http.client.HTTPResponse)  # as for all http and https URLs
    return response
