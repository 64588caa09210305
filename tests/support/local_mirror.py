"""A mirror on this machine, with every fault that a mirror can have. Use: pytest_plugins = ["local_mirror"]."""

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

PIECES = 20  # in how many the slow ones send a file


class LocalMirror:
    """Serves `files` over HTTP on 127.0.0.1, well or badly: `mirror("slow")` is the address of the slow way.

    "good"; "elsewhere": a redirection to it; "lengthless": does not say how long the file is; "labelled": with the
    header that makes browsers unpack a .gz; "slow": takes PIECES × `pause` seconds; "stalled": stops half-way and keeps
    the line open; "cut": stops half-way and hangs up; "silent": hangs up at once; "wrong": other bytes; "page": a web
    page; "missing": 404; "broken": 503.
    """

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.pause = 0.02
        self.asked: list[str] = []  # "good/file.gz", …, in order
        self.released = threading.Event()
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mirror.asked.append(self.path[1:])
                way, _, name = self.path[1:].partition("/")
                WAYS[way](mirror, self, mirror.files[name])

            def log_message(self, *_) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)

    def __call__(self, way: str) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/{way}"

    def __enter__(self) -> "LocalMirror":
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.released.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def head(handler: BaseHTTPRequestHandler, length: int | None, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    lengths = {} if length is None else {"Content-Length": str(length)}
    for name, value in (lengths | headers).items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()


def sent(handler, content: bytes, **headers: str) -> None:
    head(handler, len(content), **headers)
    handler.wfile.write(content)


def lengthless(mirror, handler, content: bytes) -> None:
    head(handler, None)
    handler.wfile.write(content)


def slow(mirror, handler, content: bytes) -> None:
    head(handler, len(content))
    step = -(-len(content) // PIECES)
    for start in range(0, len(content), step):
        time.sleep(mirror.pause)
        try:
            handler.wfile.write(content[start : start + step])
        except ConnectionError:  # the other side has lost patience
            return


def cut(mirror, handler, content: bytes) -> None:
    head(handler, len(content))
    handler.wfile.write(content[: len(content) // 2])


def stalled(mirror, handler, content: bytes) -> None:
    cut(mirror, handler, content)
    mirror.released.wait(20)


WAYS: dict[str, Callable] = {
    "good": lambda _, handler, content: sent(handler, content),
    "elsewhere": lambda _, handler, content: head(handler, 0, 302, Location=handler.path.replace("elsewhere", "good")),
    "lengthless": lengthless,
    "labelled": lambda _, handler, content: sent(handler, content, Content_Encoding="gzip"),
    "slow": slow,
    "stalled": stalled,
    "cut": cut,
    "silent": lambda *_: None,
    "wrong": lambda _, handler, content: sent(handler, bytes(255 - byte for byte in content[:100]) + content[100:]),
    "page": lambda _, handler, content: sent(handler, b"<html>Please accept the terms of this network.</html>"),
    "missing": lambda _, handler, content: head(handler, 0, 404),
    "broken": lambda _, handler, content: head(handler, 0, 503),
}


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """An empty place for downloads, none of the reader's own mirrors, and no proxy between us and any of them."""
    monkeypatch.setenv("VITBOOK_DATA", str(tmp_path / "cache"))
    monkeypatch.delenv("VITBOOK_MIRRORS", raising=False)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "*")
    return tmp_path / "cache"


@pytest.fixture
def mirror(cache):
    with LocalMirror() as mirror:
        yield mirror
