"""A Hub on this machine, for huggingface_hub's own client. Use: pytest_plugins = ["local_hub"]."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

SHA = "0123456789abcdef0123456789abcdef01234567"  # of the one commit that each model has


class LocalHub:
    """Serves folders as models over HTTP on 127.0.0.1, each under its id and the revision "main".

    gated: ids that ask for the token "good"; asked: "METHOD path" of every request, in order.
    """

    def __init__(self):
        self.models: dict[str, Path] = {}
        self.gated: set[str] = set()
        self.asked: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def stop(self) -> None:
        """Answer nobody any more."""
        if self.thread.is_alive():
            self.server.shutdown()
            self.thread.join()
            self.server.server_close()

    def files(self) -> list[str]:
        """The names of the files that were fetched, in order."""
        return [asked.rpartition("/")[2] for asked in self.asked if asked.startswith("GET") and "/resolve/" in asked]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(handler.path).path)
        self.asked.append(f"{handler.command} {path}")
        api = path.startswith("/api/models/")
        if path == "/api/agent-harnesses":
            return self.reply(handler, 404)
        parts = path.removeprefix("/api/models/" if api else "/").split("/")
        owner, name, what, revision, *file = parts if len(parts) > 2 else (*parts, "revision", "main")
        model = f"{owner}/{name}"
        if model not in self.models:
            return self.reply(handler, 404, error="RepoNotFound")
        if revision not in ("main", SHA):
            return self.reply(handler, 404, error="RevisionNotFound")
        files = sorted(one for one in self.models[model].rglob("*") if one.is_file())
        if api and what == "revision":
            there = [
                {"rfilename": str(one.relative_to(self.models[model])), "size": one.stat().st_size} for one in files
            ]
            return self.reply(handler, 200, json.dumps({"id": model, "sha": SHA, "siblings": there}).encode())
        if api and what == "tree":
            entries = [
                {"type": "file", "path": str(one.relative_to(self.models[model])), "size": one.stat().st_size}
                | {"oid": hashlib.sha1(one.read_bytes()).hexdigest()}
                for one in files
            ]
            return self.reply(handler, 200, json.dumps(entries).encode())
        if model in self.gated and handler.headers.get("Authorization") != "Bearer good":
            return self.reply(handler, 401, error="GatedRepo")
        content = (self.models[model] / "/".join(file)).read_bytes()
        tag = hashlib.sha1(content).hexdigest()
        return self.reply(handler, 200, content, ETag=f'"{tag}"')

    def reply(self, handler, status: int, content: bytes = b"", error: str = "", **headers: str) -> None:
        handler.send_response(status)
        headers |= {"Content-Length": str(len(content)), "X-Repo-Commit": SHA}
        headers |= {"X-Error-Code": error} if error else {}
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(content)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A Hub without models, of which the client has cached nothing; no token, and no proxy between the two."""
    from huggingface_hub import constants

    hub = LocalHub()
    hub.thread.start()
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "*")
    yield hub
    hub.stop()
