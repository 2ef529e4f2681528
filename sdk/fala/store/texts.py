"""The table of texts, and the names that replace texts if texts are not kept.

Inside the SDK a text is identified by its name: the text itself, or its digest, which is
HMAC-SHA256 (RFC 2104) under a random key of the device. Embeddings and logits are looked up by
either kind of name in the same way. Only two things differ: a digest cannot be encoded, and has no
n-grams.

The key is stored beside the digests. Whoever has the device can therefore compute the digest of a
guessed text, and see whether it was learned. Embeddings also reveal something about a text. An
encrypted store (``fala.store.encryption``) hides both.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np

from fala.base.errors import DeviceError, check_word
from fala.base.examples import Example, Match, as_text, unique_texts
from fala.store.columns import put_rows, rows_in
from fala.store.database import Database, damaged
from fala.store.encryption import decode_text, text_columns
from fala.text.ngrams import Ngrams, ngrams

#: Whether a device keeps texts, or only their digests.
KeepText: TypeAlias = Literal["always", "never"]

#: Why a text is not encoded, as a report says it.
NOT_KEPT = "texts are not kept, so they cannot be encoded again"

_KEY = 32
#: The largest id in SQLite.
LARGEST_ID = 2**63 - 1
#: The name of a text if texts are not kept.
NAME = re.compile(r"hmac:[0-9a-f]{64}")


def new_key(keep_text: str) -> bytes:
    """Return a key for the digests that replace texts; empty if texts are kept.

    Args:
        keep_text: Whether the app wants to keep texts; see ``KeepText``.

    Raises:
        DataError: If ``keep_text`` is not one of these words.
    """
    kept = check_word(keep_text, get_args(KeepText), "keep_text") == "always"
    return b"" if kept else secrets.token_bytes(_KEY)


def decode_key(mode: object, key: object) -> bytes:
    """Return the key of the digests from its columns; empty if texts are kept.

    Raises:
        ValueError: If the columns are damaged.
    """
    if mode == "always":
        return b""
    if mode != "never" or not isinstance(key, bytes) or len(key) != _KEY:
        raise ValueError("the setting that says whether texts are kept is damaged")
    return key


def guessed_key(names: Sequence[str]) -> bytes:
    """Guess from the majority of its texts whether a store keeps texts, and return its new key.

    Digests under the lost key stay; if such a text is learned again, it counts as a new one.
    """
    digests = [NAME.fullmatch(name) is not None for name in names]
    return new_key("never" if 2 * sum(digests) > len(digests) else "always")


class Texts:
    """The table of texts, which all tasks share.

    Args:
        database: The store's file.
    """

    def __init__(self, database: Database) -> None:
        self._db = database
        self._key: bytes | None = None

    def key(self) -> bytes:
        """Return the key of the digests that replace texts; empty if texts are kept."""
        if self._key is None:
            with self._db.rows("its settings are damaged") as db:
                row = db.execute("SELECT keep_text, text_key FROM device").fetchone()
                if row is None:
                    raise ValueError("the row with the device's settings is missing")
                self._key = decode_key(*row)
        return self._key

    def kept(self) -> bool:
        """Return whether texts are kept, so that they can be encoded again and have n-grams."""
        return not self.key()

    def set_key(self, key: bytes) -> None:
        """Write whether texts are kept, before the first text. Call it in a transaction."""
        with self._db.connection() as db:
            mode = "never" if key else "always"
            db.execute("UPDATE device SET keep_text = ?, text_key = ?", (mode, key or None))
        self._key = key

    def names(self, texts: Sequence[str]) -> list[str]:
        """Return the names of some texts in the store."""
        if self.kept():
            return list(texts)
        digests = (hmac.new(self.key(), text.encode(), hashlib.sha256) for text in texts)
        return [f"hmac:{digest.hexdigest()}" for digest in digests]

    def named(self, examples: Sequence[Example]) -> list[Example]:
        """Return examples with names in place of their texts."""
        if self.kept():
            return list(examples)
        texts = unique_texts(examples)
        names = dict(zip(texts, self.names(texts), strict=True))
        return [
            Match(tuple(names[text] for text in example.history), names[example.candidate])
            if isinstance(example, Match)
            else names[example]
            for example in examples
        ]

    def ngrams(self, names: Sequence[str]) -> Ngrams:
        """Return the n-grams of texts, given their names; empty if texts are not kept."""
        if self.kept():
            return ngrams(names)
        return np.zeros(len(names) + 1, dtype=np.intp), np.empty(0, dtype=np.int32)

    def newest(self, count: int) -> list[str]:
        """Return the most recently added texts of all tasks; empty if texts are not kept."""
        if not self.kept():
            return []
        with self._db.rows("its texts are damaged") as db:
            query = "SELECT id, text, sealed FROM texts ORDER BY id DESC LIMIT ?"
            codec = self._db.codec
            return [as_text(decode_text(codec, *row)) for row in db.execute(query, (count,))]

    def ids(self, texts: Sequence[str]) -> dict[str, int]:
        """Return the ids of those texts that the table has."""
        with self._db.connection() as db:
            by_name = {self._db.codec.lookup(text): text for text in texts}
            rows = rows_in(db, "SELECT text, id FROM texts WHERE text", [*by_name])
        return {by_name[name]: row for name, row in rows}

    def add(self, texts: Sequence[str]) -> dict[str, int]:
        """Write the texts that the table lacks, and return the ids of all the texts.

        Call it in a transaction.
        """
        with self._db.connection() as db:
            ids = self.ids(texts)
            missing = [text for text in texts if text not in ids]
            (last,) = db.execute("SELECT coalesce(max(id), 0) FROM texts").fetchone()
            if last >= LARGEST_ID - len(missing):
                raise DeviceError(damaged(self._db.path, "a text has an id that is out of range"))
            new = {text: last + 1 + position for position, text in enumerate(missing)}
            codec = self._db.codec
            rows = [text_columns(codec, row, text) for text, row in new.items()]
            put_rows(db, "texts", rows)
        return ids | new

    def by_id(self, ids: Sequence[int]) -> dict[int, object]:
        """Return texts by id, as they were written.

        Raises:
            ValueError: If a text cannot be decrypted.
        """
        with self._db.connection() as db:
            rows = rows_in(db, "SELECT id, text, sealed FROM texts WHERE id", ids)
        return {row[0]: decode_text(self._db.codec, *row) for row in rows}
