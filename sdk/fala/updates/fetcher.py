"""How files come from a vendor's server: in bounded time, in bounded size, and on from any byte."""

from __future__ import annotations

import http.client
import re
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from tuf.api import exceptions
from tuf.ngclient.fetcher import FetcherInterface

from fala.updates.limits import UpdateLimits
from fala.updates.paced import get

#: Told what is there of a file, in bytes, and what there is to come; it may raise to end it.
Tell = Callable[[int, int], None]

_CHUNK = 1 << 16
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class BrokenOffError(exceptions.DownloadError):
    """The connection broke off: what came can be gone on from."""


# tuf's own fetcher goes on from no byte, and waits for a byte at a time without an end.
class Fetcher(FetcherInterface):
    """Gets the metadata for tuf's updater, and releases to a file."""

    def __init__(self, limits: UpdateLimits) -> None:
        self._limits = limits

    def _fetch(self, url: str) -> Iterator[bytes]:
        """A file from its beginning; tuf stops reading where it becomes too long."""
        return _body(_ask(url, self._limits, self._limits.metadata_bytes), url)

    def resume(self, url: str, file: Path, length: int, tell: Tell) -> None:
        """Bring a file that is there in part to its length; what is in it is not looked at.

        Args:
            url: Where the whole of it is.
            file: It need not exist; whatever comes is in it, however this ends.
            length: Of the whole, in bytes.
            tell: See ``Tell``.

        Raises:
            DownloadLengthMismatchError: More is there than the length.
            DownloadError: It cannot be had, is shorter, or breaks off again and again.
            OSError: The file cannot be written.
        """
        failures = 0
        file.touch(mode=0o600)
        with file.open("ab") as stream:
            if stream.tell() > length:
                stream.truncate(0)
            while (start := stream.seek(0, 2)) < length:
                tell(start, length)
                whole = False
                try:
                    whole = self._append(url, stream, start, length, tell)
                except BrokenOffError:
                    failures += whole or stream.tell() - start < _CHUNK
                    if failures >= self._limits.attempts:
                        raise
            tell(length, length)

    def _append(self, url: str, stream: BinaryIO, start: int, length: int, tell: Tell) -> bool:
        """Write what comes in one answer; whether it began anew although it was to go on."""
        answer = _ask(url, self._limits, length, start)
        anew = start > 0 and not _goes_on(answer, start)
        if anew:
            stream.truncate(0)
            start = 0
        total = start
        for chunk in _body(answer, url):
            total += len(chunk)
            if total > length:
                raise exceptions.DownloadLengthMismatchError(
                    f"{url}: longer than the {length} bytes that the vendor tells"
                )
            stream.write(chunk)
            tell(total, length)
        if total < length:
            raise BrokenOffError(f"{url}: ended after {total} of {length} bytes")
        return anew


def _ask(url: str, limits: UpdateLimits, most: int, start: int = 0) -> http.client.HTTPResponse:
    # Compressed content could be longer than it is.
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        return get(url, headers, limits, most)
    except urllib.error.HTTPError as error:
        error.close()
        if start and error.code == 416:  # what is there reaches beyond what is offered
            return _ask(url, limits, most)
        raise exceptions.DownloadHTTPError(
            f"{url}: the server answers {error.code} {error.reason}", error.code
        ) from error
    except urllib.error.URLError as error:
        raise exceptions.DownloadError(f"{url}: cannot be reached: {error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise BrokenOffError(f"{url}: no whole answer: {error!r:.200}") from error


def _goes_on(answer: http.client.HTTPResponse, start: int) -> bool:
    if answer.status != 206:
        return False
    told = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    if told is None or int(told[1]) != start:
        answer.close()
        raise exceptions.DownloadError(f"the server gives other bytes than from {start} on")
    return True


def _body(answer: http.client.HTTPResponse, url: str) -> Iterator[bytes]:
    """The bytes of an answer as they come, to its announced end."""
    with answer:
        try:
            while chunk := answer.read1(_CHUNK):
                yield chunk
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise BrokenOffError(f"{url}: broke off: {error!r:.200}") from error
        if answer.length:  # what was announced and has not come
            raise BrokenOffError(f"{url}: broke off with {answer.length} bytes to come")
