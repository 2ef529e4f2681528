"""HTTP whose every byte is waited for within limits: status lines, headers and bodies alike.

The standard library's clients wait as long as one byte comes now and then; a server can hold a
device so for days. Here every read of the socket counts what it waited.
"""

from __future__ import annotations

import functools
import http.client
import io
import socket
import time
import urllib.request
from typing import TYPE_CHECKING, Any

from tuf.api.exceptions import SlowRetrievalError

from fala.updates.limits import UpdateLimits

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class Pace:
    """Counts what one download waited for, and gives up where that is too long."""

    def __init__(self, limits: UpdateLimits) -> None:
        self._limits = limits
        self._waited = 0.0
        self._came = 0

    def read(self, connection: socket.socket, buffer: WriteableBuffer) -> int:
        """Read what has come.

        Raises:
            SlowRetrievalError: Nothing came for too long, or too little did.
        """
        limits = self._limits
        enough = limits.least_rate * limits.window_seconds
        patience = limits.silent_seconds
        if self._came < enough:
            patience = min(patience, max(limits.window_seconds - self._waited, 0.001))
        connection.settimeout(patience)
        # Only waiting counts: neither a slow disk nor an app's progress bar is the server's fault.
        started = time.monotonic()
        try:
            count = connection.recv_into(buffer)
        except TimeoutError as error:
            raise SlowRetrievalError(f"no more came for {patience:.3g} seconds") from error
        self._waited += time.monotonic() - started
        self._came += count
        if self._waited >= limits.window_seconds:
            if self._came < enough:
                raise SlowRetrievalError(
                    f"{self._came} bytes in {self._waited:.3g} seconds; less than "
                    f"{limits.least_rate:g} a second are not waited for"
                )
            self._waited, self._came = 0.0, 0
        return count


def get(url: str, headers: dict[str, str], limits: UpdateLimits) -> http.client.HTTPResponse:
    """Ask a server for a file; it is read with ``read1``.

    Raises:
        SlowRetrievalError: Its answer came too slowly.
        OSError: It cannot be reached; ``urllib.error.HTTPError`` where it answers with an error.
        http.client.HTTPException: It does not answer in HTTP.
    """
    pace = Pace(limits)
    opener = urllib.request.OpenerDirector()
    # No other scheme: a redirection to a file of the device leads nowhere.
    for handler in (
        urllib.request.ProxyHandler(), _Plain(pace), _Encrypted(pace),
        urllib.request.HTTPDefaultErrorHandler(), urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(), urllib.request.UnknownHandler(),
    ):  # fmt: skip
        opener.add_handler(handler)
    request = urllib.request.Request(url, headers={"User-Agent": "fala", **headers})
    answer: http.client.HTTPResponse = opener.open(request, timeout=limits.connect_seconds)
    return answer


class _PacedReader(io.RawIOBase):
    def __init__(self, connection: socket.socket, pace: Pace) -> None:
        self._connection, self._pace = connection, pace
        # The socket lives as long as a file of it is open, which is how its owner counts.
        self._held = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        return self._pace.read(self._connection, buffer)

    def close(self) -> None:
        if not self.closed:
            self._held.close()
        super().close()


class _PacedSocket:
    """As much of a socket as an answer reads by."""

    def __init__(self, connection: socket.socket, pace: Pace) -> None:
        self._connection, self._pace = connection, pace

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_PacedReader(self._connection, self._pace))


def _answer(
    pace: Pace, connection: socket.socket, debuglevel: int = 0, method: str | None = None
) -> http.client.HTTPResponse:
    paced: Any = _PacedSocket(connection, pace)
    return http.client.HTTPResponse(paced, debuglevel, method)


def _connection(
    kind: type[http.client.HTTPConnection], pace: Pace, host: str, **options: object
) -> http.client.HTTPConnection:
    made = kind(host, **options)  # type: ignore[arg-type]
    made.response_class = functools.partial(_answer, pace)  # type: ignore[assignment]
    return made


class _Plain(urllib.request.HTTPHandler):
    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        kind: Any = functools.partial(_connection, http.client.HTTPConnection, self._pace)
        return self.do_open(kind, request)


class _Encrypted(urllib.request.HTTPSHandler):
    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        kind: Any = functools.partial(_connection, http.client.HTTPSConnection, self._pace)
        return self.do_open(kind, request)
