"""Downloads that resume where they stopped, and publishers' checksums."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import requests

from fala import DataError
from fala.cli import progress

_log = logging.getLogger("fala.sim.data")

_PART = 2**16  # bytes
_SECONDS = 30  # without a byte from the publisher
_AGAIN = "the same command resumes"


class Resuming:
    """A downloader for ``pooch`` that resumes interrupted downloads.

    A partial file is stored with its version, the publisher's ``ETag`` or ``Last-Modified``. It is
    discarded if the publisher has another version, or names none.
    """

    def __init__(self, partial: Path) -> None:
        """Store a partial download in a file.

        Args:
            partial: Its path; its version is stored beside it, with ``.version``.
        """
        self._partial, self._version = partial, partial.with_name(f"{partial.name}.version")

    def __call__(
        self, url: str, output_file: object, pooch: object, check_only: bool = False
    ) -> None:
        """Download a file.

        Args:
            url: The file's address.
            output_file: The path to write.
            pooch: Not used.
            check_only: Not used.

        Raises:
            DataError: If the download is interrupted; the next call resumes.
        """
        version = self._version.read_text(encoding="utf-8") if self._version.is_file() else ""
        size = self._partial.stat().st_size if version and self._partial.is_file() else 0
        start = max(size - 1, 0)  # one byte again: the range after a whole file would be empty
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers |= {"Range": f"bytes={start}-", "If-Range": version}
        try:
            with requests.get(url, headers=headers, stream=True, timeout=_SECONDS) as response:
                response.raise_for_status()
                if response.status_code != requests.codes.partial_content:
                    start = 0
                    tag = response.headers.get("ETag", "")
                    # A weak tag does not promise the same bytes.
                    name = tag if tag.startswith('"') else response.headers.get("Last-Modified", "")
                    self._version.write_text(name, encoding="utf-8")
                self._receive(response, start)
        except requests.RequestException as error:
            raise unreachable(url, error) from error
        self._partial.replace(Path(str(output_file)))
        self.forget()

    def forget(self) -> None:
        """Remove the partial download."""
        self._partial.unlink(missing_ok=True)
        self._version.unlink(missing_ok=True)

    def _receive(self, response: requests.Response, start: int) -> None:
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else 0
        with self._partial.open("r+b" if start else "wb") as file:
            file.truncate(start)
            file.seek(start)
            with progress(self._partial.stem, total, _log) as bar:
                bar.update(start)
                for part in response.iter_content(_PART):
                    file.write(part)
                    bar.update(len(part))


def unreachable(url: str, error: requests.RequestException) -> DataError:
    """A one-line error for a failed request to a publisher."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return DataError(f"{url}: the publisher answered {error.response.status_code}")
    broken = (requests.exceptions.ChunkedEncodingError, requests.ReadTimeout)
    if isinstance(error, broken) or "Read timed out" in str(error):  # also within the body
        return DataError(f"{url}: broke off; {_AGAIN}")
    wrong = (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema)
    if isinstance(error, (requests.exceptions.ProxyError, *wrong)):
        return DataError(
            f"{url}: cannot be reached over the proxy that https_proxy, http_proxy or all_proxy has"
        )
    return DataError(f"{url}: cannot be reached")


def published_md5(url: str) -> str:
    """A publisher's MD5 checksum; "" if there is no such page.

    Raises:
        DataError: If the publisher cannot be reached, or the page has no checksum.
    """
    try:
        response = requests.get(url, timeout=_SECONDS)
        if response.status_code == requests.codes.not_found:
            return ""
        response.raise_for_status()
    except requests.RequestException as error:
        raise unreachable(url, error) from error
    match = re.search(r"\b[0-9a-fA-F]{32}\b", response.text[:1000])
    if match is None:
        raise DataError(f"{url}: has no MD5")
    return match[0].lower()
