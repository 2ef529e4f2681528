"""A loopback server with the part of the Hugging Face hub's protocol that models need."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from file_server import FileServer, Handler

_LARGE = (".safetensors", ".bin")  # the hub redirects these to another address
_RESOLVE = re.compile(r"/((?:[\w.-]+/)?[\w.-]+)/resolve/([^/]+)/(.+)")
_API = re.compile(r"/api/models/((?:[\w.-]+/)?[\w.-]+?)(?:/(?:revision|(tree))/([^/]+))?")


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
        content = b"".join(name.encode() + data for name, data in sorted(files.items()))
        commit = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        self.commits[commit] = files
        self.branches |= dict.fromkeys(branches, commit)
        return commit


@dataclass
class Hub(FileServer):
    """A running hub, whose address is for ``HF_ENDPOINT``; it cuts large files alone short.

    Attributes:
        models: By name.
        status: What every request is answered with; None answers it.
        silent: Whether requests are read, and nothing is ever said.
        before: Called with each request's path before it is answered.
    """

    models: dict[str, Model] = field(default_factory=dict)
    status: int | None = None
    silent: bool = False
    before: Callable[[str], None] = lambda path: None
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __exit__(self, *_: object) -> None:
        """Stop, and let go of whoever waits for a silent hub."""
        self._stopped.set()
        super().__exit__()

    def answer(self, handler: Handler) -> None:
        """Answer a request as the hub does."""
        path = handler.path.partition("?")[0]
        self.before(path)
        if self.silent:
            self._stopped.wait()
            handler.close_connection = True
        elif self.status is not None:
            handler.say(self.status, {})
        elif found := _API.fullmatch(path):
            self._describe(handler, found[1], found[3] or "main", tree=found[2] is not None)
        elif found := _RESOLVE.fullmatch(path.removeprefix("/elsewhere")):
            self._send_file(handler, *found.groups(), elsewhere=path.startswith("/elsewhere/"))
        else:
            handler.say(404, {})

    def _describe(self, handler: Handler, name: str, revision: str, *, tree: bool) -> None:
        if commit := self._commit(handler, name, revision):
            files = self.models[name].commits[commit]
            listed = [{"rfilename": file} for file in files]
            answer: object = {"_id": "0", "id": name, "sha": commit, "siblings": listed}
            if tree:  # which the library reads since version 1
                answer = [_entry(file, data) for file, data in files.items()]
            handler.say(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())

    def _commit(self, handler: Handler, name: str, revision: str) -> str | None:
        """Return a revision's commit, or send an error."""
        model = self.models.get(name)
        if model is None:  # the hub does not reveal names of private models
            handler.say(401, {"X-Error-Code": "RepoNotFound"})
            return None
        commit = model.branches.get(revision, revision)
        if commit not in model.commits:
            handler.say(404, {"X-Error-Code": "RevisionNotFound"})
            return None
        return commit

    def _send_file(
        self, handler: Handler, name: str, revision: str, file: str, *, elsewhere: bool
    ) -> None:
        commit = self._commit(handler, name, revision)
        if commit is None:
            return
        model = self.models[name]
        headers, data = {"X-Repo-Commit": commit}, model.commits[commit].get(file)
        if model.refused is not None:
            handler.say(model.refused, {"X-Error-Code": "GatedRepo"})
        elif data is None:
            handler.say(404, {**headers, "X-Error-Code": "EntryNotFound"})
        elif file.endswith(_LARGE) and not elsewhere:
            place = f"{self.address}/elsewhere/{name}/resolve/{commit}/{file}"
            linked = {"X-Linked-Etag": _tag(file, data), "X-Linked-Size": str(len(data))}
            handler.say(302, {**headers, **linked, "Location": place})
        else:
            handler.give(data, _tag(file, data), headers, self.cut_after if elsewhere else None)


def _tag(file: str, data: bytes) -> str:
    return f'"{_entry(file, data)["oid"]}"'


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
