"""Results of a long run, kept line by line, so that it goes on where it was interrupted."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any

import click


class Journal:
    """A file of one JSON value a line, after one line that says what it is of.

    Args:
        path: The file; None keeps nothing.
        head: What the run was asked: a file of another run is refused.
    """

    def __init__(self, path: Path | None, head: dict[str, Any]) -> None:
        self.before: list[Any] = []
        self._stream = None
        if path is None:
            return
        if path.exists() and path.stat().st_size:
            whole = path.read_text(encoding="utf-8")
            # A line that was cut in two by an end of the run is done again.
            first, *lines = whole[: whole.rfind("\n") + 1].splitlines() or [""]
            if not first or json.loads(first) != head:
                raise click.UsageError(f"{path}: not the journal of such a run; name another file")
            self.before = [json.loads(line) for line in lines]
        self._stream = path.open("w", encoding="utf-8")
        for value in (head, *self.before):
            self.note(value)

    def note(self, value: Any) -> None:  # noqa: ANN401 - what JSON holds
        """Keep one result."""
        if self._stream is not None:
            print(json.dumps(value), file=self._stream, flush=True)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._stream is not None:
            self._stream.close()
