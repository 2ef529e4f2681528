"""A loopback server with the part of the Hugging Face hub's protocol that models need."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_LARGE = (".safetensors", ".bin")  # the hub redirects these to another address
_RESOLVE = re.compile(r"/((?:[\w.-]+/)?[\w.-]+)/resolve/([^/]+)/(.+)")
_API = re.compile(r"/api/models/((?:[\w.-]+/)?[\w.-]+?)(?:/(?:revision|(tree))/([^/]+))?")


def commit_of(files: dict[str, bytes]) -> str:
    """Return a commit's name for a set of files: forty hexadecimal digits."""
    content = b"".join(name.encode() + data for name, data in sorted(files.items()))
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


@dataclass
class Model:
    """A model on the hub.

    Attributes:
        commits: Files of each commit.
        branches: Commits that branches and tags stand for.
        refused: Status of the answer to everybody, with the code of a gated model; None gives it.
    """

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    refused: int | None = None

    def push(self, files: dict[str, bytes], *branches: str) -> str:
        """Add a commit, let branches or tags stand for it, and return its name.

        As in every model on the hub, a file of git's says which others are large.
        """
        files = {".gitattributes": b"*.safetensors filter=lfs\n", **files}
        commit = commit_of(files)
        self.commits[commit] = files
        self.branches |= dict.fromkeys(branches, commit)
        return commit


@dataclass
class Hub:
    """A running hub.

    Attributes:
        address: For ``HF_ENDPOINT``.
        models: By name.
        requests: Method and path of every request, in order.
        cut_after: Bytes of a large file after which the connection breaks, at every request.
        status: What every request is answered with; None answers it.
        silent: Whether requests are read, and nothing is ever said.
        before: Called with each request's path before it is answered.
    """

    address: str = ""
    models: dict[str, Model] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    cut_after: int | None = None
    status: int | None = None
    silent: bool = False
    before: Callable[[str], None] = lambda path: None
    _server: ThreadingHTTPServer | None = None
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Hub:
        """Start to listen on a free port."""
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop; the port refuses connections from then on."""
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def wait(self) -> None:
        """Send nothing until the hub stops."""
        self._stopped.wait()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:  # the base class's name
        self._handle(body=False)

    def do_GET(self) -> None:
        self._handle(body=True)

    def log_message(self, *_: object) -> None:
        pass  # keep the log out of the tests' output

    def _handle(self, body: bool) -> None:
        hub, path = self.hub, self.path.partition("?")[0]
        hub.requests.append((self.command, path))
        hub.before(path)
        if hub.silent:
            hub.wait()
            self.close_connection = True
            return
        if hub.status is not None:
            self._reply(hub.status, {})
        elif found := _API.fullmatch(path):
            self._describe(found[1], found[3] or "main", tree=found[2] is not None)
        elif found := _RESOLVE.fullmatch(path.removeprefix("/elsewhere")):
            self._send_file(*found.groups(), body, elsewhere=path.startswith("/elsewhere/"))
        else:
            self._reply(404, {})

    def _describe(self, name: str, revision: str, tree: bool) -> None:
        if commit := self._commit(name, revision):
            files = self.hub.models[name].commits[commit]
            listed = [{"rfilename": file} for file in files]
            answer: object = {"_id": "0", "id": name, "sha": commit, "siblings": listed}
            if tree:  # which the library reads since version 1
                answer = [_entry(file, data) for file, data in files.items()]
            self._reply(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())

    def _commit(self, name: str, revision: str) -> str | None:
        """Return a revision's commit, or send an error."""
        model = self.hub.models.get(name)
        if model is None:  # the hub does not reveal names of private models
            self._reply(401, {"X-Error-Code": "RepoNotFound"})
            return None
        commit = model.branches.get(revision, revision)
        if commit not in model.commits:
            self._reply(404, {"X-Error-Code": "RevisionNotFound"})
            return None
        return commit

    def _send_file(self, name: str, revision: str, file: str, body: bool, elsewhere: bool) -> None:
        commit = self._commit(name, revision)
        if commit is None:
            return
        model = self.hub.models[name]
        if model.refused is not None:
            self._reply(model.refused, {"X-Error-Code": "GatedRepo"})
            return
        headers = {"X-Repo-Commit": commit}
        data = model.commits[commit].get(file)
        if data is None:
            self._reply(404, {**headers, "X-Error-Code": "EntryNotFound"})
            return
        tag = f'"{_entry(file, data)["oid"]}"'
        if file.endswith(_LARGE) and not elsewhere:
            place = f"{self.hub.address}/elsewhere/{name}/resolve/{commit}/{file}"
            linked = {"X-Linked-Etag": tag, "X-Linked-Size": str(len(data)), "Location": place}
            self._reply(302, {**headers, **linked})
            return
        self._send(data, {**headers, "ETag": tag}, body, self.hub.cut_after if elsewhere else None)

    def _send(self, data: bytes, headers: dict[str, str], body: bool, cut: int | None) -> None:
        start = 0
        if asked := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")):
            start = int(asked[1])
            headers = {**headers, "Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
        self.send_response(206 if start else 200)
        self._end({**headers, "Content-Length": str(len(data) - start)})
        if body:
            self.wfile.write(data[start:][:cut])
            self.close_connection = cut is not None

    def _reply(self, status: int, headers: dict[str, str], data: bytes = b"") -> None:
        self.send_response(status)
        self._end({**headers, "Content-Length": str(len(data))})
        if self.command != "HEAD":
            self.wfile.write(data)

    def _end(self, headers: dict[str, str]) -> None:
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def _entry(file: str, data: bytes) -> dict[str, object]:
    digest, size = hashlib.sha256(data).hexdigest(), len(data)
    entry = {"type": "file", "path": file, "size": size, "oid": digest}
    large = {"lfs": {"oid": digest, "size": size, "pointerSize": 130}}
    return entry | (large if file.endswith(_LARGE) else {})


def files_in(folder: Path) -> dict[str, bytes]:
    """Read a model folder's files, by their paths in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
