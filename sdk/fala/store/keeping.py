"""What a store keeps of a text: the text, or a keyed digest in its place.

A digest is HMAC-SHA256 (RFC 2104) under a random key of the device's own. Everything below the
device's door knows a text by its name: the text itself, or the digest, with the text's hashed
n-grams behind it where they are kept. So all that is made of a text is found by either alike, and
only two things differ: what is a name cannot be encoded, and its n-grams are read, not hashed.

The key lies beside the digests. Who has the device can compute the digest of a text that he
guesses, whole, and see whether it was learned; with n-grams he can try single words. Embeddings
tell something of a text, too. An encrypted store (``fala.store.sealing``) hides all of them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args

import numpy as np

from fala.errors import DataError, DeviceError, shown
from fala.examples import Example, Match, unique_texts
from fala.store.database import damaged
from fala.store.settings import Settings
from fala.text.ngrams import Ngrams, ngrams

#: What is kept of a text: all, a digest with the hashed n-grams, or the digest alone.
KeepText: TypeAlias = Literal["always", "ngrams", "never"]

#: The setting that tells it, with the digests' key; a store without it keeps texts.
KEEPING = "keep text"
#: Why a text is not encoded, in a report's words.
NOT_KEPT = "texts are not kept, and cannot be encoded again"

_KEY = 32
_NAME = re.compile(r"hmac:[0-9a-f]{64}(:[A-Za-z0-9+/=]*)?")


@dataclass(frozen=True)
class Keeping:
    """What is kept of a text.

    Attributes:
        mode: See ``KeepText``.
        key: The digests' key.
    """

    mode: KeepText = "always"
    key: bytes = b""

    @property
    def texts(self) -> bool:
        """Whether texts are kept: whether they can be encoded again."""
        return self.mode == "always"

    @property
    def words(self) -> bool:
        """Whether a text's n-grams are known."""
        return self.mode != "never"

    def names(self, texts: Sequence[str]) -> list[str]:
        """What texts are known by below the door."""
        if self.texts:
            return list(texts)
        names = [
            f"hmac:{hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()}"
            for text in texts
        ]
        if not self.words:
            return names
        starts, buckets = ngrams(texts)
        parts = np.split(buckets.astype("<u2"), starts[1:-1])
        return [
            f"{name}:{base64.b64encode(part.tobytes()).decode()}"
            for name, part in zip(names, parts, strict=False)
        ]

    def check(self, name: str) -> None:
        """Check the n-grams of a name, where they are kept.

        Raises:
            ValueError: They are damaged.
        """
        if self.mode == "ngrams":
            self.ngrams([name])

    def ngrams(self, names: Sequence[str]) -> Ngrams:
        """The n-grams of named texts; none where they are not kept.

        Raises:
            ValueError: A name is damaged.
        """
        if self.texts:
            return ngrams(names)
        parts = [np.empty(0, dtype="<u2")]
        for name in names:
            encoded = name.rpartition(":")[2] if self.words else ""
            part = np.frombuffer(base64.b64decode(encoded, validate=True), "<u2")
            if (np.diff(part.astype(np.int64)) <= 0).any():
                raise ValueError("n-grams that are not in order")
            parts.append(part)
        starts = np.cumsum([len(part) for part in parts], dtype=np.int64)
        return starts, np.concatenate(parts).astype(np.int32)


def keep_text_of(value: str) -> KeepText:
    """What is to be kept of a text, checked.

    Raises:
        DataError: It is none of the words.
    """
    if not isinstance(value, str) or value not in get_args(KeepText):
        words = ", ".join(f'"{word}"' for word in get_args(KeepText))
        raise DataError(f"keep_text is one of {words}, not {shown(value)}")
    return cast(KeepText, value)


def keeping_of(value: str | None) -> Keeping:
    """What a setting says.

    Raises:
        ValueError: It is damaged.
    """
    if value is None:
        return Keeping()
    mode, _, key = value.partition(" ")
    if mode not in get_args(KeepText)[1:] or len(key) != 2 * _KEY:
        raise ValueError("what is kept of a text is not known")
    return Keeping(cast(KeepText, mode), bytes.fromhex(key))


def setting_of(mode: KeepText) -> str:
    """The setting of a new key: a device's own, or one in the place of a key that is lost."""
    return f"{mode} {secrets.token_hex(_KEY)}"


def lost_setting(names: Iterable[str]) -> str | None:
    """The setting of a store that has lost it; None where most of its texts are texts.

    What was kept under the lost key stays; a text of it that is learned again is a new one.
    """
    matches = [_NAME.fullmatch(name) for name in names]
    found = [match for match in matches if match]
    if 2 * len(found) <= len(matches):
        return None
    return setting_of("ngrams" if all(match[1] for match in found) else "never")


class Keeper(Settings):
    """What a store keeps in the place of texts."""

    def keep_text(self, mode: KeepText) -> None:
        """Note what is to be kept, before the first text. In a transaction."""
        if mode != "always":
            self.set(KEEPING, setting_of(mode))

    @property
    def keeping(self) -> Keeping:
        """What is kept of a text."""
        with self._db.rows("its settings are damaged"):
            return keeping_of(self.get(KEEPING))

    def named(self, examples: Sequence[Example]) -> list[Example]:
        """Examples as the store knows them: of names in the place of texts."""
        keeping = self.keeping
        if keeping.texts:
            return list(examples)
        texts = unique_texts(examples)
        names = dict(zip(texts, keeping.names(texts), strict=True))
        return [
            Match(tuple(names[text] for text in one.history), names[one.candidate])
            if isinstance(one, Match)
            else names[one]
            for one in examples
        ]

    def ngrams(self, names: Sequence[str]) -> Ngrams:
        """The n-grams of texts that the store knows.

        Raises:
            DeviceError: They are damaged.
        """
        try:
            return self.keeping.ngrams(names)
        except ValueError as error:
            raise DeviceError(damaged(self._db.path, f"a text is damaged: {error}")) from error
