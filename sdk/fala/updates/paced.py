"""HTTP whose every byte is waited for within limits: status lines, headers and bodies alike.

The standard library's clients wait as long as one byte comes now and then, and read headers without
an end; a server can hold a device so for days. Here every read of the socket is counted.
"""

from __future__ import annotations

import functools
import http.client
import io
import socket
import time
import urllib.request
from typing import TYPE_CHECKING, Any

from tuf.api.exceptions import DownloadLengthMismatchError, SlowRetrievalError

from fala.updates.limits import UpdateLimits

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


# Status lines, headers, and what marks the pieces of content without a length.
_AROUND = 1 << 20


class Pace:
    """Counts what one answer brings, and what was waited for it; gives up at too much of either.

    Args:
        limits: What is waited for.
        most: Bytes of content that may come.
    """

    def __init__(self, limits: UpdateLimits, most: int) -> None:
        self._limits = limits
        self._left = 2 * most + _AROUND
        self._waited = 0.0
        self._came = 0

    def read(self, connection: socket.socket, buffer: WriteableBuffer) -> int:
        """Read what has come.

        Raises:
            SlowRetrievalError: Nothing came for too long, or too little did.
            DownloadLengthMismatchError: More came than any honest answer has.
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
        self._left -= count
        if self._left < 0:
            raise DownloadLengthMismatchError("an answer without an end, exceeding what is taken")
        if self._waited >= limits.window_seconds:
            if self._came < enough:
                raise SlowRetrievalError(
                    f"{self._came} bytes in {self._waited:.3g} seconds; less than "
                    f"{limits.least_rate:g} a second are not waited for"
                )
            self._waited, self._came = 0.0, 0
        return count


def get(
    url: str, headers: dict[str, str], limits: UpdateLimits, most: int
) -> http.client.HTTPResponse:
    """Ask a server for a file of at most so many bytes; it is read with ``read1``.

    Raises:
        SlowRetrievalError: Its answer came too slowly.
        DownloadLengthMismatchError: Its answer does not end.
        OSError: It cannot be reached; ``urllib.error.HTTPError`` where it answers with an error.
        http.client.HTTPException: It does not answer in HTTP.
    """
    pace = Pace(limits, most)
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
    made = kind(host, **options)  # type: ignore[arg-type]  # urllib's own, passed on as they come
    # A class is expected, and http.client only calls it.
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
