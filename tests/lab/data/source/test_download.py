from __future__ import annotations

import hashlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from reweigh.errors import DataError
from reweigh.lab.data.source.download import Remote, check, fetch

CONTENT = bytes(i * 7 % 251 for i in range(600_000))
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves CONTENT; tests set how it behaves and read what it was asked."""

    ranges = True
    announce = True
    stop_after: int | None = None
    shift = 0
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []

    def handle_error(self, *_args: object) -> None:
        """A client that hangs up is part of these tests."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers["Range"]
        self.server.asked.append(asked)
        if self.path != "/file":
            self.send_error(404)
            return
        start = int(asked[6:-1]) if asked and self.server.ranges else 0
        if start >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start + self.server.shift}-{len(CONTENT) - 1}/{len(CONTENT)}")
        if self.server.announce:
            self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        self.wfile.write(CONTENT[start : self.server.stop_after])

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_a_file_arrives_whole(server, tmp_path) -> None:
    seen: list[tuple[int, int | None]] = []
    target = tmp_path / "deep" / "file"
    got = fetch(Remote(server.url, len(CONTENT), MD5), target, lambda done, total: seen.append((done, total)))
    assert got == target
    assert target.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert seen == sorted(seen)
    assert [p.name for p in target.parent.iterdir()] == ["file"]


def test_what_is_there_is_checked_and_not_fetched(server, tmp_path) -> None:
    target = tmp_path / "file"
    target.write_bytes(CONTENT)
    fetch(Remote(server.url, len(CONTENT), MD5), target)
    target.write_bytes(CONTENT[:-1] + b"!")
    with pytest.raises(DataError, match="md5"):
        fetch(Remote(server.url, len(CONTENT), MD5), target)
    assert server.asked == []


def test_a_broken_download_is_resumed(server, tmp_path) -> None:
    remote, target = Remote(server.url, len(CONTENT), MD5), tmp_path / "file"
    server.stop_after = 250_000
    with pytest.raises(DataError, match="ended after 250000 of 600000 bytes"):
        fetch(remote, target)
    assert (tmp_path / "file.part").stat().st_size == 250_000
    assert not target.exists()
    server.stop_after = None
    assert fetch(remote, target).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=250000-"]
    assert not (tmp_path / "file.part").exists()


def test_a_server_without_ranges_starts_again(server, tmp_path) -> None:
    server.ranges = False
    (tmp_path / "file.part").write_bytes(b"other")
    assert fetch(Remote(server.url, len(CONTENT), MD5), tmp_path / "file").read_bytes() == CONTENT


def test_a_part_that_is_too_long_starts_again(server, tmp_path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT + b"x")
    assert fetch(Remote(server.url, len(CONTENT), MD5), tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [None]


def test_an_unsatisfiable_range_starts_again(server, tmp_path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT + b"x")
    assert fetch(Remote(server.url), tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == ["bytes=600001-", None]


def test_a_complete_part_is_only_renamed(server, tmp_path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    fetch(Remote(server.url, len(CONTENT), MD5), tmp_path / "file")
    assert server.asked == []


def test_a_wrong_continuation_is_refused(server, tmp_path) -> None:
    server.shift = 5
    (tmp_path / "file.part").write_bytes(CONTENT[:100])
    with pytest.raises(DataError, match="another range"):
        fetch(Remote(server.url, len(CONTENT), MD5), tmp_path / "file")


def test_a_wrong_digest_leaves_nothing(server, tmp_path) -> None:
    (tmp_path / "file.part").write_bytes(b"x" * 100)
    with pytest.raises(DataError, match=f"{MD5[:-1]}"):
        fetch(Remote(server.url, len(CONTENT), MD5), tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_size_leaves_nothing(server, tmp_path) -> None:
    with pytest.raises(DataError, match="600000 bytes, but"):
        fetch(Remote(server.url, len(CONTENT) + 1), tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_more_than_published_is_cut_off(server, tmp_path) -> None:
    server.announce = False
    with pytest.raises(DataError, match="more than 1000 bytes"):
        fetch(Remote(server.url, 1000), tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_a_truncated_stream_without_announcement_fails_the_check(server, tmp_path) -> None:
    server.announce, server.stop_after = False, 1000
    with pytest.raises(DataError, match="ended after 1000 of 600000"):
        fetch(Remote(server.url, len(CONTENT), MD5), tmp_path / "file")


def test_without_a_network_the_error_says_what_to_do(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound but not listening: every connection is refused
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/set.tar.gz"
        with pytest.raises(DataError) as caught:
            fetch(Remote(url, 12, "abc"), tmp_path / "set.tar.gz")
    message = str(caught.value)
    assert f"cannot download {url}" in message
    assert f"download {url} (12 bytes, md5 abc) by other means, save it as {tmp_path / 'set.tar.gz'}" in message


def test_missing_page(server, tmp_path) -> None:
    with pytest.raises(DataError, match="Not Found"):
        fetch(Remote(server.url + "s"), tmp_path / "file")


def test_other_schemes_are_refused() -> None:
    with pytest.raises(ValueError, match="http"):
        Remote("file:///etc/passwd")


def test_check_without_facts_accepts(tmp_path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    check(Remote("http://x/a"), tmp_path / "a")
