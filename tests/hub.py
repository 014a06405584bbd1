"""A hub of our own, served on this machine in the protocol of the real one."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.data.rows import GLAIVE

COMMIT = "c0ffee" + "0" * 34
REPOS: dict[str, dict[str, bytes]] = {
    "models/sea/pilot": {"config.json": b"{}", "model.safetensors": b"w", "original/old.pth": b"x", "model.bin": b"x"},
    "datasets/sea/tides": {"data/train.jsonl": json.dumps(GLAIVE).encode() + b"\n", "README.md": b"# tides"},
    "datasets/sea/gated": {"rows.jsonl": b"{}"},
}


class Hub(BaseHTTPRequestHandler):
    """The three kinds of requests a snapshot needs: what a repository holds, a file's head, a file."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer(body=True)

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def answer(self, *, body: bool) -> None:
        path = self.path.partition("?")[0].strip("/").removeprefix("api/")
        kind = "" if path.startswith(("models/", "datasets/")) else "models/"
        repo = next((repo for repo in REPOS if (kind + path).startswith(repo)), None)
        if repo is None:
            self.reply(404, b"", {"X-Error-Code": "RepoNotFound"}, body)
            return
        rest = (kind + path).removeprefix(repo).strip("/").split("/")
        if rest[0] == "resolve" and repo.endswith("gated") and "authorization" not in self.headers:
            self.reply(403, b"", {"X-Error-Code": "GatedRepo"}, body)
        elif len(rest) > 1 and rest[1] not in ("main", COMMIT):
            self.reply(404, b"", {"X-Error-Code": "RevisionNotFound"}, body)
        elif rest[0] == "resolve":
            content = REPOS[repo]["/".join(rest[2:])]
            self.reply(200, content, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}, body)
        elif rest[0] == "tree":
            tree = [{"type": "file", "path": n, "size": len(c), "oid": n} for n, c in REPOS[repo].items()]
            self.reply(200, json.dumps(tree).encode(), {"Content-Type": "application/json"}, body)
        else:
            siblings = [{"rfilename": name} for name in REPOS[repo]]
            info = {"id": repo.partition("/")[2], "sha": COMMIT, "siblings": siblings, "private": False}
            self.reply(200, json.dumps(info).encode(), {"Content-Type": "application/json"}, body)

    def reply(self, status: int, content: bytes, headers: dict[str, str], body: bool) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def hub(host: str = "127.0.0.1") -> Iterator[str]:
    """Its address, for HF_ENDPOINT."""
    server = ThreadingHTTPServer((host, 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
