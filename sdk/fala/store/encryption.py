"""Encryption at rest: each record is encrypted by itself, under a key that the app keeps.

AES-256-GCM (NIST SP 800-38D) with a random nonce for each record, and the record's place (table,
row, column) as associated data, so that no record passes for another. A text is looked up by its
HMAC-SHA256 (RFC 2104). Both keys are derived from the app's by HKDF (RFC 5869). Ids, times, counts,
digests, names of labels and adapters, and the vendor's bundles stay readable. An older copy of the
whole file that somebody puts back is not detected.
By pyca/cryptography, the extra ``encryption``, which is loaded when a key is first used.

The app keeps the key where the system keeps secrets. With keyring::

    def key() -> bytes:
        stored = keyring.get_password("my app", "fala")
        if stored is None:
            stored = os.urandom(32).hex()
            keyring.set_password("my app", "fala", stored)
        return bytes.fromhex(stored)

    device = fala.Device.open(folder, key=key)
"""

from __future__ import annotations

import hashlib
import hmac
import os
import sqlite3
from collections.abc import Callable

from fala.errors import DataError, DeviceError, MissingExtraError
from fala.store.columns import blob, text

#: Returns the app's key, 32 bytes.
Key = Callable[[], bytes]

#: The encrypted columns: table, columns of its key, the column, and the end of the record's place.
#: Of ``texts`` the text is encrypted, too; see ``fala.store.texts``.
RECORDS = (
    ("examples", ("id",), "label", ("label",)),
    ("earlier_labels", ("example", "since"), "label", ("label",)),
    ("embeddings", ("text", "backbone"), "vector", ()),
    ("logits", ("example", "model"), "value", ()),
    ("prompts", ("backbone",), "compiled", ()),
    ("slots", ("name",), "weight", ("weight",)),
    ("slots", ("name",), "bias", ("bias",)),
    ("slots", ("name",), "buckets", ("buckets",)),
    ("slots", ("name",), "lexical", ("lexical",)),
)

_BYTES = 32
_NONCE = 12
_CHECK = b"fala"
#: Where schema 8 kept the mark: its associated data stays what it was.
_MARK = ("settings", "sealed")


class Codec:
    """Writes the records of a store that is not encrypted: as they are."""

    encrypted = False

    def encode(self, data: bytes, *place: object) -> bytes:
        """A record's data as it is written.

        Args:
            data: The data.
            place: The record's table, row and column.
        """
        return data

    def decode(self, value: object, *place: object) -> bytes:
        """A record's data from what was written.

        Raises:
            ValueError: It is damaged, belongs to another place, or has another key.
        """
        return blob(value)

    def encode_text(self, data: str, *place: object) -> str | bytes:
        """A text as it is written."""
        return data

    def decode_text(self, value: object, *place: object) -> str:
        """A text from what was written; see ``decode``."""
        return text(value)

    def lookup(self, data: str) -> str:
        """The value by which a text is looked up."""
        return data

    def mark(self) -> bytes | None:
        """Identifies the key without revealing it; None without one."""
        return None


class Encryption(Codec):
    """Writes the records of an encrypted store.

    Args:
        key: The app's key, 32 bytes.

    Raises:
        MissingExtraError: pyca/cryptography is not installed.
    """

    encrypted = True

    def __init__(self, key: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF
        except ImportError as error:
            raise MissingExtraError(
                "encryption needs pyca/cryptography: pip install 'fala-sdk[encryption]'"
            ) from error

        def derived(purpose: bytes) -> bytes:
            return HKDF(SHA256(), _BYTES, None, b"fala store " + purpose).derive(key)

        self._cipher = AESGCM(derived(b"records"))
        self._names = derived(b"names")

    def encode(self, data: bytes, *place: object) -> bytes:
        """See ``Codec``."""
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher.encrypt(nonce, data, _place(place))

    def decode(self, value: object, *place: object) -> bytes:
        """See ``Codec``."""
        from cryptography.exceptions import InvalidTag

        if not isinstance(value, bytes):
            raise ValueError("a record that is not encrypted")
        try:
            return bytes(self._cipher.decrypt(value[:_NONCE], value[_NONCE:], _place(place)))
        except (InvalidTag, ValueError) as error:
            raise ValueError("a record that is damaged, or of another key") from error

    def encode_text(self, data: str, *place: object) -> bytes:
        """See ``Codec``."""
        return self.encode(data.encode(), *place)

    def decode_text(self, value: object, *place: object) -> str:
        """See ``Codec``."""
        return self.decode(value, *place).decode()

    def lookup(self, data: str) -> str:
        """See ``Codec``."""
        return hmac.new(self._names, data.encode(), hashlib.sha256).hexdigest()

    def mark(self) -> bytes:
        """See ``Codec``."""
        return self.encode(_CHECK, *_MARK)


PLAIN = Codec()


def codec_of(key: Key | None) -> Codec:
    """The codec of a store's records.

    Args:
        key: Returns the key; None for a store that is not encrypted.

    Raises:
        DataError: It cannot be called, or does not return 32 bytes.
        MissingExtraError: pyca/cryptography is not installed.
    """
    if key is None:
        return PLAIN
    if not callable(key):
        raise DataError(f"key is a function that gives {_BYTES} bytes, not a {type(key).__name__}")
    value = key()
    if not isinstance(value, bytes | bytearray) or len(value) != _BYTES:
        size = f" of {len(value)}" if isinstance(value, bytes | bytearray) else ""
        raise DataError(f"key gives {_BYTES} bytes, not {type(value).__name__}{size}")
    return Encryption(bytes(value))


def check_mark(path: object, mark: object, codec: Codec) -> None:
    """Compare a store's key with the app's, before anything else is read or written.

    Args:
        path: The store's file, for errors.
        mark: The store's mark; None where it is not encrypted.
        codec: Reads the store.

    Raises:
        DeviceError: They differ.
    """
    if mark is None and not codec.encrypted:
        return
    if mark is None:
        raise DeviceError(
            f"{path}: is not encrypted; open it without a key, and encrypt it with rotate_key"
        )
    if not codec.encrypted:
        raise DeviceError(f"{path}: is encrypted; open it with its key=")
    try:
        right = codec.decode(mark, *_MARK) == _CHECK
    except ValueError:
        right = False
    if not right:
        raise DeviceError(f"{path}: is encrypted under another key than the one given")


def text_columns(codec: Codec, identity: int, text: str) -> tuple[int, str, bytes | None]:
    """A text's row: the text in clear, or what it is looked up by and the text encrypted."""
    encrypted = codec.encode(text.encode(), "texts", identity, "sealed")
    return identity, codec.lookup(text), encrypted if codec.encrypted else None


def text_of(codec: Codec, identity: object, name: object, encrypted: object) -> str:
    """A text of its row."""
    return codec.decode_text(encrypted if codec.encrypted else name, "texts", identity, "sealed")


def rotate(db: sqlite3.Connection, old: Codec, new: Codec) -> None:
    """Decrypt every record, and encrypt it under another key. In a transaction.

    Args:
        db: The store's connection.
        old: Reads the records.
        new: Writes them.

    Raises:
        ValueError: A record is damaged.
    """
    for row, name, encrypted in db.execute("SELECT id, text, sealed FROM texts").fetchall():
        _, *columns = text_columns(new, row, text_of(old, row, name, encrypted))
        db.execute("UPDATE texts SET text = ?, sealed = ? WHERE id = ?", (*columns, row))
    for table, keys, column, ending in RECORDS:
        read, write = (old.decode, new.encode)
        if column == "label":
            read, write = (old.decode_text, new.encode_text)  # type: ignore[assignment]  # text, not bytes
        chosen = f"SELECT {', '.join(keys)}, {column} FROM {table} WHERE {column} IS NOT NULL"
        where = " AND ".join(f"{key} = ?" for key in keys)
        for *key, value in db.execute(chosen).fetchall():
            place = (table, *key, *ending)
            db.execute(
                f"UPDATE {table} SET {column} = ? WHERE {where}",
                (write(read(value, *place), *place), *key),
            )


def _place(parts: tuple[object, ...]) -> bytes:
    return "/".join(map(str, parts)).encode()
