"""What every converter gives: rows for ``fala-replace --data``, and how they came out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fala import DataError


@dataclass(frozen=True, slots=True)
class TextRow:
    """One row of a classification data set, in the order of keys that the file has.

    Attributes:
        user: None in public rows.
        split: ``"public"``, ``"train"`` or ``"test"``.
        text: The document.
        label: Its class.
    """

    user: str | None
    split: str
    text: str
    label: int


@dataclass(frozen=True, slots=True)
class Conversion:
    """Rows, the public's first, then user by user, train before test."""

    rows: list[TextRow]

    def to_jsonl(self) -> bytes:
        """The rows as UTF-8, one JSON object a line."""
        lines = (
            json.dumps(
                {"user": row.user, "split": row.split, "text": row.text, "label": row.label},
                ensure_ascii=False,
            )
            for row in self.rows
        )
        return "".join(line + "\n" for line in lines).encode("utf-8")

    def summary(self) -> list[str]:
        """A few lines for people: what each user got, and the public."""
        users: dict[str, list[TextRow]] = {}
        public: list[TextRow] = []
        for row in self.rows:
            (public if row.user is None else users.setdefault(row.user, [])).append(row)
        width = max((len(user) for user in users), default=0)
        lines = [
            f"{user:>{width}}: {len(rows)} documents, "
            f"{_share(row.split == 'test' for row in rows)} test, "
            f"{_share(row.label == 1 for row in rows)} label 1"
            for user, rows in users.items()
        ]
        held_out = {row.text for row in self.rows if row.split == "test"}
        documents = {row.text for row in self.rows if row.user is not None}
        lines.append(
            f"{len(users)} users: {len(documents)} documents, {len(held_out)} of them test only"
        )
        lines.append(
            f"public: {len(public)} labels of others on {len({row.text for row in public})} "
            f"documents, {_share(row.label == 1 for row in public)} label 1"
        )
        return lines


def _share(flags: Iterable[bool]) -> str:
    values = list(flags)
    return f"{100 * sum(values) / len(values):.1f} %"


def save(content: bytes, path: Path) -> None:
    """Write a file whole or not at all.

    Args:
        content: What the file is to hold.
        path: Where; an existing file is replaced, through a link where it is one.

    Raises:
        DataError: If the file cannot be written.
    """
    try:
        path = path.resolve()
        # Renaming over a device such as /dev/null would put a file in its place.
        if path.exists() and not path.is_file():
            raise DataError(f"cannot write {str(path)!r}: not a regular file")
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            part.write_bytes(content)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"cannot write {str(path)!r}: {error.strerror}") from error
