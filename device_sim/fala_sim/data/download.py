"""Downloads that go on where they stopped."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import requests

from fala import DataError
from fala.cli.progress import progress

_log = logging.getLogger("fala.sim.data")

_LARGEST = 2**31  # bytes; the largest data set is a tenth of it
_PART = 2**16
_SECONDS = 30  # without a word from the publisher
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


class Resuming:
    """A downloader for ``pooch``; what came before an interruption is kept, and not asked again.

    It is kept with what the publisher calls that version of the file (``ETag`` or
    ``Last-Modified``): of another version nothing is used, nor of a file without either.
    """

    def __init__(self, kept: Path) -> None:
        """Keep what came in a file.

        Args:
            kept: Its path; beside it, with ``.json``, the version.
        """
        self._kept, self._version = kept, kept.with_name(f"{kept.name}.json")

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
            DataError: If it breaks off; the next call goes on.
        """
        start, version = self._before()
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers |= {"Range": f"bytes={start}-", "If-Range": version}
        try:
            with requests.get(url, headers=headers, stream=True, timeout=_SECONDS) as answer:
                if start and answer.status_code == 416:  # all of it was there, or more
                    self.forget()
                    self(url, output_file, pooch)
                    return
                answer.raise_for_status()
                self._receive(url, answer, start)
        except requests.RequestException as error:
            raise unreachable(url, error) from error
        self._kept.replace(Path(str(output_file)))
        self.forget()

    def forget(self) -> None:
        """Remove what came."""
        self._kept.unlink(missing_ok=True)
        self._version.unlink(missing_ok=True)

    def _before(self) -> tuple[int, str]:
        try:
            version = json.loads(self._version.read_text(encoding="utf-8"))
            return (self._kept.stat().st_size, str(version)) if version else (0, "")
        except (OSError, ValueError):
            return 0, ""

    def _receive(self, url: str, answer: requests.Response, start: int) -> None:
        length = answer.headers.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else None
        if answer.status_code == 206:
            found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            if found is None or int(found[1]) != start:
                self.forget()
                raise DataError(f"{url}: came from a place that was not asked for; try again")
            total = int(found[2])
        else:
            start = 0
            total = int(length) if length.isdigit() else None
            tag = answer.headers.get("ETag", "")
            # A weak tag is of versions that mean the same, and need not be the same bytes.
            version = tag if tag.startswith('"') else answer.headers.get("Last-Modified", "")
            self._kept.unlink(missing_ok=True)
            self._version.write_text(json.dumps(version), encoding="utf-8")
        if (total or 0) > _LARGEST:
            raise DataError(f"{url}: {total:,} bytes; no data set here is so large")
        done = start
        with (
            self._kept.open("ab") as file,
            progress(self._kept.stem, total or 0, _log) as bar,
        ):  # fmt: skip
            bar.update(start)
            for part in answer.iter_content(_PART):
                file.write(part)
                done += len(part)
                bar.update(len(part))
                if done > _LARGEST:
                    raise DataError(f"{url}: no data set here is so large")
        if total is not None and done < total:
            raise DataError(f"{url}: broke off after {done:,} of {total:,} bytes; {_AGAIN}")


_AGAIN = "the same command goes on from there"


def unreachable(url: str, error: requests.RequestException) -> DataError:
    """One line for what went wrong on the way to a publisher."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return DataError(f"{url}: the publisher answered {error.response.status_code}")
    if isinstance(error, (requests.exceptions.ChunkedEncodingError, requests.ReadTimeout)):
        return DataError(f"{url}: broke off; {_AGAIN}")
    if "Read timed out" in str(error):  # in the middle of the body
        return DataError(f"{url}: broke off; {_AGAIN}")
    return DataError(f"{url}: cannot be reached")


def published_md5(url: str) -> str:
    """A checksum that a publisher tells; "" where there is no such page.

    Raises:
        DataError: If the publisher cannot be reached, or the page has no checksum.
    """
    try:
        answer = requests.get(url, timeout=_SECONDS)
        if answer.status_code == 404:
            return ""
        answer.raise_for_status()
    except requests.RequestException as error:
        raise unreachable(url, error) from error
    found = re.search(r"\b[0-9a-fA-F]{32}\b", answer.text[:1000])
    if found is None:
        raise DataError(f"{url}: no MD5 is there")
    return found[0].lower()
