"""A loopback server of files, which goes on from any byte and breaks off where it is told to."""

from __future__ import annotations

import hashlib
import re
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class FileServer:
    """A running server.

    Attributes:
        files: By path, without the first slash.
        address: Of the server.
        requests: Path and ``Range`` of every request, in order.
        cut_after: Bytes of a body after which the connection breaks.
        tags: Whether files have an ``ETag``.
        ranges: Whether it goes on from a byte when it is asked to.
        certificate: A file with a certificate and its key, for TLS.
        special: What answers in place of a file, by path: it is given the request's handler.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    address: str = ""
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    cut_after: int | None = None
    tags: bool = True
    ranges: bool = True
    certificate: Path | None = None
    special: dict[str, Callable[[Handler], None]] = field(default_factory=dict)

    def __enter__(self) -> FileServer:
        """Start to listen on a free port."""
        handler = type("Handler", (Handler,), {"of": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        # Clients that hang up, or do not believe the certificate, are what tests are about.
        self._server.handle_error = lambda *_: None
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        if self.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            self.address = self.address.replace("http:", "https:")
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop; the port refuses connections from then on."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler: Handler) -> None:
        """Answer a request for a file."""
        path = handler.path[1:]
        if (special := self.special.get(path)) is not None:
            handler.close_connection = True
            special(handler)
        elif (data := self.files.get(path)) is None:
            handler.say(404, {}, cut=self.cut_after)
        else:
            tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
            handler.give(data, tag, {}, self.cut_after)


class Handler(BaseHTTPRequestHandler):
    """Hands requests to its server, and sends what that answers."""

    of: FileServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass  # the test's output is no place for a server's log

    def do_GET(self) -> None:
        self.of.requests.append((self.path[1:], self.headers.get("Range")))
        self.of.answer(self)

    def do_HEAD(self) -> None:
        self.do_GET()

    def give(self, data: bytes, tag: str, headers: dict[str, str], cut: int | None) -> None:
        """Send a file, from the byte that is asked for."""
        start, asked = 0, self.headers.get("Range")
        if self.of.tags:
            headers = {**headers, "ETag": tag}
        if asked and self.of.ranges and self.headers.get("If-Range", tag) == tag:
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])
            if start >= len(data):
                self.say(416, {"Content-Range": f"bytes */{len(data)}"}, cut=cut)
                return
            headers = headers | {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
        self.say(206 if start else 200, headers, data[start:], cut)

    def say(
        self, status: int, headers: dict[str, str], data: bytes = b"", cut: int | None = None
    ) -> None:
        """Send an answer, of whose content ``cut`` bytes come before the connection breaks."""
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[:cut])
        if cut is not None:
            self.close_connection = True
