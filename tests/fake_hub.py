"""A stand-in for the Hugging Face hub: the HTTP paths that a download of model files uses."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """Repositories by name, each with its files; and the requests that came.

    Args:
        repos: repository -> path -> content.
        gated: repositories whose terms nobody has accepted.
        cut: paths of which only half is sent, whatever the headers promise.
    """

    repos: dict[str, dict[str, bytes]]
    gated: set[str] = field(default_factory=set)
    cut: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    endpoint: str = ""

    def num_downloads(self, file: str) -> int:
        """How often a file's bytes were asked for."""
        return sum(line.startswith("GET") and line.endswith(file) for line in self.requests)


class Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            self._list("/".join(parts[2:4]))
            return
        repo, file = "/".join(parts[:2]), "/".join(parts[4:])
        if repo in self.hub.gated:
            self._refuse(403, "GatedRepo")
        elif repo not in self.hub.repos:
            self._refuse(404, "RepoNotFound")
        elif file not in self.hub.repos[repo]:
            self._refuse(404, "EntryNotFound")
        else:
            self._send(self.hub.repos[repo][file], with_body, cut=file in self.hub.cut)

    def _list(self, repo: str) -> None:
        if repo not in self.hub.repos:
            self._refuse(404, "RepoNotFound")
            return
        files = [
            {"type": "file", "path": path, "size": len(content), "oid": _oid(content)}
            for path, content in self.hub.repos[repo].items()
        ]
        self._send(json.dumps(files).encode(), True)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, content: bytes, with_body: bool, *, cut: bool = False) -> None:
        start = 0
        if asked := self.headers.get("Range"):
            start = int(asked.removeprefix("bytes=").split("-")[0])
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{_oid(content)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if with_body:
            self.wfile.write(content[start : len(content) // 2] if cut else content[start:])
        self.close_connection = cut

    def log_message(self, format: str, *args: object) -> None:
        return None


@contextmanager
def serve(hub: FakeHub) -> Iterator[FakeHub]:
    """Answer for `hub` on a free port of this machine; its address goes to `hub.endpoint`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"hub": hub}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
