"""Downloads that resume where they stopped, and publishers' checksums."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import requests

from fala import DataError
from fala.cli.progress import progress

_log = logging.getLogger("fala.sim.data")

_PART = 2**16  # bytes
_SECONDS = 30  # without a byte from the publisher
_AGAIN = "the same command resumes"


class Resuming:
    """A downloader for ``pooch``; what came before an interruption is kept, and not asked again.

    It is kept with what the publisher calls that version of the file (``ETag`` or
    ``Last-Modified``): of another version nothing is used, nor of a file without either.
    """

    def __init__(self, kept: Path) -> None:
        """Keep what came in a file.

        Args:
            kept: Its path; beside it, with ``.version``, the version.
        """
        self._kept, self._version = kept, kept.with_name(f"{kept.name}.version")

    def __call__(
        self, url: str, output_file: object, pooch: object, check_only: bool = False
    ) -> None:
        """Bring a file.

        Args:
            url: From where.
            output_file: Where to.
            pooch: Who asks; not used.
            check_only: Not used.

        Raises:
            DataError: If it breaks off; the next call resumes.
        """
        version = self._version.read_text(encoding="utf-8") if self._version.is_file() else ""
        have = self._kept.stat().st_size if version and self._kept.is_file() else 0
        start = max(have - 1, 0)  # one byte again: of a whole file there would be no range left
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers |= {"Range": f"bytes={start}-", "If-Range": version}
        try:
            with requests.get(url, headers=headers, stream=True, timeout=_SECONDS) as answer:
                answer.raise_for_status()
                if answer.status_code != requests.codes.partial_content:
                    start = 0
                    tag = answer.headers.get("ETag", "")
                    # A weak tag is of versions that mean the same, and need not be the same bytes.
                    named = tag if tag.startswith('"') else answer.headers.get("Last-Modified", "")
                    self._version.write_text(named, encoding="utf-8")
                self._receive(answer, start)
        except requests.RequestException as error:
            raise unreachable(url, error) from error
        self._kept.replace(Path(str(output_file)))
        self.forget()

    def forget(self) -> None:
        """Remove what came."""
        self._kept.unlink(missing_ok=True)
        self._version.unlink(missing_ok=True)

    def _receive(self, answer: requests.Response, start: int) -> None:
        length = answer.headers.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else 0
        with self._kept.open("r+b" if start else "wb") as file:
            file.truncate(start)
            file.seek(start)
            with progress(self._kept.stem, total, _log) as bar:
                bar.update(start)
                for part in answer.iter_content(_PART):
                    file.write(part)
                    bar.update(len(part))


def unreachable(url: str, error: requests.RequestException) -> DataError:
    """One line for what went wrong on the way to a publisher."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return DataError(f"{url}: the publisher answered {error.response.status_code}")
    broken = (requests.exceptions.ChunkedEncodingError, requests.ReadTimeout)
    if isinstance(error, broken) or "Read timed out" in str(error):  # also within the body
        return DataError(f"{url}: broke off; {_AGAIN}")
    return DataError(f"{url}: cannot be reached")


def published_md5(url: str) -> str:
    """A checksum that a publisher tells; "" where there is no such page.

    Raises:
        DataError: If the publisher cannot be reached, or the page has no checksum.
    """
    try:
        answer = requests.get(url, timeout=_SECONDS)
        if answer.status_code == requests.codes.not_found:
            return ""
        answer.raise_for_status()
    except requests.RequestException as error:
        raise unreachable(url, error) from error
    match = re.search(r"\b[0-9a-fA-F]{32}\b", answer.text[:1000])
    if match is None:
        raise DataError(f"{url}: no MD5 is there")
    return match[0].lower()
