"""Fetch files from a vendor's server, in bounded time and size, resumed from any byte."""

from __future__ import annotations

import http.client
import io
import os
import re
import socket
import time
import urllib.request
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

import urllib3
from tuf.api import exceptions
from tuf.ngclient.fetcher import FetcherInterface

from fala.base.errors import DownloadError
from fala.updates.limits import UpdateLimits

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: A function that is called with the number of bytes received and the file's length, and that may
#: raise an error to stop.
BytesReceived = Callable[[int, int], None]
_Receive = Callable[[socket.socket, io.RawIOBase, "WriteableBuffer"], int]

_CHUNK = 1 << 16
_BLANK = b"\xef\xbb\xbf \t\r\n"  # blanks before a page; the first three bytes are a byte order mark
_ROOT = re.compile(r"/[0-9]+\.root\.json$")
_NOT_FOUND, _GONE = 404, 410
# Names that some servers announce for content that is not compressed.
_PLAIN = ("", "identity", "aws-chunked")
_HEADER = 2  # bytes of the header of deflate
# Bytes for status lines, headers, and the marks between chunks.
_OVERHEAD = 1 << 20
# Only redirects are followed, because ``resume`` counts its own retries.
_RETRIES = urllib3.Retry(total=None, connect=0, read=0, redirect=5, status=0, other=0)


class BrokenConnectionError(exceptions.DownloadError):
    """The connection broke; the download can resume."""


# tuf's own fetcher does not resume, and its time limits apply only between two bytes.
class Fetcher(FetcherInterface):
    """Fetches metadata for tuf's updater, and releases to a file.

    urllib3's own time limits apply between two bytes, so a server that sends a byte now and then
    would block the device for days, and urllib3 does not limit the size. So every byte is received
    by ``_receive``, which limits the time of all requests and the bytes of one response.

    Args:
        url: The repository's address, which decides whether the system's proxy is used.
        limits: The limits, whose ``total_seconds`` count from now.

    Attributes:
        address: The address of the last file that was fetched.

    Raises:
        DownloadError: If the system's proxy has an address that cannot be used.
    """

    def __init__(self, url: str, limits: UpdateLimits) -> None:
        self.address = url
        self._limits = limits
        self._end = time.monotonic() + limits.total_seconds
        self._bytes = 0  # that the current response may still have
        proxy, setting = _proxy(url), _proxy_setting(urlsplit(url).scheme)
        self._way = "" if proxy is None else f" over the proxy of {setting}"
        try:
            self._connections = _bounded_connections(proxy, self._receive)
        # a ValueError means that there is no host
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise DownloadError(
                f"{url}: {setting} does not name a proxy that can be used; expected "
                "http://HOST:PORT or https://HOST:PORT"
            ) from error

    def _fetch(self, url: str) -> Iterator[bytes]:
        """Return a file from its first byte; tuf stops reading if it becomes too long."""
        limit = self._limits.metadata_bytes
        try:
            response = self._request(url, limit)
        except BrokenConnectionError:  # for example a reused connection that the server has closed
            response = self._request(url, limit)
        return _content(response, url)

    def resume(self, url: str, file: Path, length: int, progress: BytesReceived) -> None:
        """Download the rest of a file, without checking the bytes that are already there.

        Args:
            url: The address of the whole file.
            file: The file, which need not exist. It keeps the received bytes, even after an error.
            length: The length of the whole file, in bytes.
            progress: A function that is called with the number of bytes that are there, and of all
                bytes.

        Raises:
            DownloadLengthMismatchError: If the server sends more than the length.
            DownloadError: If the file is not available or is shorter, or the connection breaks
                repeatedly.
            OSError: If the file cannot be written.
        """
        failures = 0
        file.touch(mode=0o600)
        with file.open("ab") as stream:
            if stream.tell() > length:
                stream.truncate(0)
            while (start := stream.seek(0, 2)) < length:
                progress(start, length)
                try:
                    self._append(url, stream, length, progress)
                except BrokenConnectionError:
                    failures += stream.tell() - start < _CHUNK
                    if failures >= self._limits.attempts:
                        raise
            progress(length, length)

    def _append(self, url: str, stream: BinaryIO, length: int, progress: BytesReceived) -> None:
        """Write the content of one response to the file."""
        response = self._request(url, length, stream.tell())
        if response.status == 206 and _encoding(response, url):
            response.close()  # a part of the compressed file is part of another file
            response = self._request(url, length)
        # Status 200 means the whole file, even if a part was requested.
        total = 0 if response.status == 200 else stream.tell()
        for chunk in _content(response, url):
            if total == 0:
                stream.truncate(0)
            total += len(chunk)
            if total > length:
                raise exceptions.DownloadLengthMismatchError(
                    f"{url}: the file is longer than the {length} bytes that the vendor declares"
                )
            stream.write(chunk)
            progress(total, length)
        if total < length:
            raise BrokenConnectionError(
                f"{url}: the response ended after {total} of {length} bytes"
            )

    def _request(self, url: str, limit: int, start: int = 0) -> urllib3.BaseHTTPResponse:
        """Return a response with the whole file (200), or its bytes from ``start`` on (206)."""
        self.address = url
        # Compressed content would have another length, and no part of it could be resumed.
        headers = {"User-Agent": "fala", "Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        self._bytes = 2 * limit + _OVERHEAD
        seconds = min(self._limits.connect_seconds, self._seconds())
        try:
            response = self._connections.request(
                "GET", url, headers=headers, retries=_RETRIES, timeout=seconds,
                preload_content=False, decode_content=False,
            )  # fmt: skip
        # a ValueError means a bad redirect
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            cause = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
            if isinstance(cause, urllib3.exceptions.ProtocolError):
                raise BrokenConnectionError(
                    f"{url}: the response is broken: {cause!r:.200}"
                ) from error
            raise exceptions.DownloadError(
                f"{url}: cannot be reached{self._way}: {cause}"
            ) from error
        content_range = response.headers.get("Content-Range", "")
        if response.status == 200 or (
            response.status == 206 and start and content_range.startswith(f"bytes {start}-")
        ):
            return response
        response.close()
        if response.status == 206:
            raise exceptions.DownloadError(
                f"{url}: the server sends other bytes than those from {start} on"
            )
        status = _NOT_FOUND if response.status == _GONE else response.status
        raise exceptions.DownloadHTTPError(
            f"{url}: the server returns {response.status} {response.reason}", status
        )

    def _seconds(self) -> float:
        """Return the remaining time in seconds.

        Raises:
            SlowRetrievalError: If no time is left.
        """
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise exceptions.SlowRetrievalError(
                f"it was not done in {self._limits.total_seconds:g} s (UpdateLimits.total_seconds)"
            )
        return seconds

    def _receive(
        self, connection: socket.socket, raw: io.RawIOBase, buffer: WriteableBuffer
    ) -> int:
        """Read the received bytes.

        Raises:
            SlowRetrievalError: If no byte came in time.
            DownloadLengthMismatchError: If there are more bytes than a response can have.
        """
        connection.settimeout(min(self._limits.silent_seconds, self._seconds()))
        try:
            count = raw.readinto(buffer) or 0
        except TimeoutError as error:
            raise exceptions.SlowRetrievalError("no byte came in time") from error
        self._bytes -= count
        if self._bytes < 0:
            raise exceptions.DownloadLengthMismatchError("the response has no end")
        return count


class _BoundedReader(io.RawIOBase):
    """The bytes of one response: status line, headers, marks and content."""

    def __init__(self, connection: socket.socket, raw: io.RawIOBase, receive: _Receive) -> None:
        self._connection, self._raw, self._receive = connection, raw, receive

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        return self._receive(self._connection, self._raw, buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _bounded_connections(proxy: str | None, receive: _Receive) -> urllib3.PoolManager:
    """Return connections whose every byte is read by a function."""

    class Response(http.client.HTTPResponse):
        def __init__(
            self, sock: socket.socket, debuglevel: int = 0, method: str | None = None
        ) -> None:
            super().__init__(sock, debuglevel, method)
            reader = _BoundedReader(sock, self.fp.detach(), receive)
            self.fp: io.BufferedReader = io.BufferedReader(reader)

    def bounded(pool: Any) -> Any:  # noqa: ANN401 - a class with a class
        connection = type("Connection", (pool.ConnectionCls,), {"response_class": Response})
        return type("Pool", (pool,), {"ConnectionCls": connection})

    connections = urllib3.PoolManager()
    if proxy is not None:
        parts = urllib3.util.parse_url(proxy)
        if not parts.host:
            raise ValueError("no host")
        login = urllib3.make_headers(proxy_basic_auth=parts.auth)
        connections = urllib3.ProxyManager(proxy, proxy_headers=login)
    pools = connections.pool_classes_by_scheme  # all managers share this dictionary
    connections.pool_classes_by_scheme = {name: bounded(pool) for name, pool in pools.items()}
    return connections


def _proxy(url: str) -> str | None:
    """Return the address of the system's proxy for a repository; None if there is none."""
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy is None or urllib.request.proxy_bypass(parts.netloc):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _proxy_setting(scheme: str) -> str:
    """Return, for errors, the variable with the proxy's address, which may contain a password."""
    names = [name for name in os.environ if name.lower() == f"{scheme}_proxy"]
    return f"the variable {max(names)}" if names else "the system's proxy"


def _content(response: urllib3.BaseHTTPResponse, url: str) -> Iterator[bytes]:
    """Yield the bytes of a file up to their announced end, in pieces of bounded size.

    Raises:
        DownloadHTTPError: If a page replaces the next root, which a host without it may send.
        DownloadError: If a page replaces another file, or the content cannot be decoded.
    """
    encoding, content = _encoding(response, url), _received(response, url)
    if encoding:
        content = _decoded(content, encoding, url)
    begun = response.status == 206
    for piece in content:
        if not begun and (first := piece.lstrip(_BLANK)[:1]):
            begun = True
            if first == b"<":  # metadata begin with a brace, and releases with PK
                raise _page(response, url)
        yield piece


def _page(response: urllib3.BaseHTTPResponse, url: str) -> exceptions.DownloadError:
    response.close()
    message = (
        f"{url}: the server sends an HTML page in place of the file: it does not have the file, "
        "the address is another one, or the network asks to log in"
    )
    # By the specification (5.3.3), a next root that is not available ends the search for roots.
    if _ROOT.search(url):
        return exceptions.DownloadHTTPError(message, _NOT_FOUND)
    return exceptions.DownloadError(message)


def _encoding(response: urllib3.BaseHTTPResponse, url: str) -> str:
    """Return the compression of a response, although none was asked for; empty if there is none.

    Raises:
        DownloadError: If the compression is neither gzip nor deflate.
    """
    listed = response.headers.get("Content-Encoding", "").lower().split(",")
    encodings = [name.strip() for name in listed if name.strip() not in _PLAIN]
    if not encodings:
        return ""
    if encodings in (["gzip"], ["x-gzip"], ["deflate"]):
        return encodings[0]
    response.close()
    raise exceptions.DownloadError(
        f"{url}: the server compresses it by {', '.join(encodings)}, which was not asked for and "
        "cannot be read; it must serve the file as it is"
    )


def _decoded(content: Generator[bytes], encoding: str, url: str) -> Generator[bytes]:
    """Yield content without its gzip or deflate, in pieces of bounded size.

    Raises:
        BrokenConnectionError: If the content ends early.
        DownloadError: If the content is not compressed this way.
    """
    decoder, data = None, b""
    try:
        for chunk in content:
            data += chunk
            if decoder is None:
                if len(data) < _HEADER:
                    continue
                # By the standard, deflate has a header; some servers send none.
                plain = encoding == "deflate" and int.from_bytes(data[:_HEADER], "big") % 31
                decoder = zlib.decompressobj(-zlib.MAX_WBITS if plain else 32 + zlib.MAX_WBITS)
            piece = decoder.decompress(data, _CHUNK)
            while piece:
                yield piece
                piece = decoder.decompress(decoder.unconsumed_tail, _CHUNK)
            if decoder.eof:  # if a server announces a wrong length, no byte follows
                return
            data = b""
    except zlib.error as error:
        raise exceptions.DownloadError(
            f"{url}: the server announces {encoding}, but sends other content"
        ) from error
    finally:
        content.close()
    raise BrokenConnectionError(f"{url}: its compressed content ends early")


def _received(response: urllib3.BaseHTTPResponse, url: str) -> Generator[bytes]:
    """Yield the bytes of a response as they arrive, up to its announced end."""
    try:
        while chunk := response.read1(_CHUNK):
            yield chunk
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        raise BrokenConnectionError(f"{url}: the connection broke: {error!r:.200}") from error
    finally:
        response.close()  # a connection with unread content serves no further request
