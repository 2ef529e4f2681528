"""Encryption at rest: each record is encrypted separately, under a key that the app keeps.

The cipher is AES-256-GCM (NIST SP 800-38D) with a random nonce for each record. Its associated data
is the record's context: table, row, column, and the data that the record belongs to. A label is
bound to its text, an embedding to its text, and weights to the other columns of their slot. A text
is looked up by its HMAC-SHA256 (RFC 2104). All keys are derived by HKDF (RFC 5869) from the app's
key and a random salt of the device, so no record of another device is accepted. Ids, times, counts,
digests, names of labels and adapters, and the vendor's bundles stay readable, but changing them, or
adding and deleting rows, needs the key: see ``fala.store.digests``. The ciphers come from
pyca/cryptography, the extra ``encryption``, which is loaded when a key is first used.

The app keeps the key in the system's key store, for example with keyring::

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
import secrets
import sqlite3
import zlib
from collections.abc import Callable

from fala.base.errors import DataError, DeviceError, needs, type_of
from fala.store.columns import blob, put_rows, text

#: A function that returns the app's key, 32 bytes.
Key = Callable[[], bytes]

#: The encrypted columns of a slot, and the columns to which they are bound.
SLOT_WEIGHTS = ("weight", "bias", "buckets", "lexical")
BOUND_SLOT_COLUMNS = (
    "bundle", "backbone", "model", "teacher", "labels", "loss",
)  # fmt: skip

#: The texts of an example, to which the records computed from them are bound.
_TEXTS_OF_EXAMPLE = tuple(
    f"(SELECT {column} FROM examples WHERE id = example)" for column in ("document", "history")
)
#: The other encrypted records: the table, the encrypted column, and the record's context.
_RECORDS = (
    ("examples", "label", ("id", "'label'", "document", "history", "labelled", "adapter")),
    ("earlier_labels", "label", ("example", "since", "'label'", *_TEXTS_OF_EXAMPLE)),
    ("logits", "value", ("example", "model", *_TEXTS_OF_EXAMPLE)),
    ("device", "trust", ("one", "'trust'")),
    *(("slots", name, ("name", f"'{name}'", *BOUND_SLOT_COLUMNS)) for name in SLOT_WEIGHTS),
)

_BYTES = 32
_CHECKSUM = 4
_SALT = 16
_NONCE = 12
_CHECK = b"fala"
#: The context of the mark.
_MARK = ("device", "one", "key_mark")


class Codec:
    """The codec of a store without encryption, whose records are bytes with a checksum (CRC-32)."""

    encrypted = False
    salt = b""

    def of(self, record: object) -> Codec:
        """Return the codec of a store, given one of its records that begin with the salt."""
        return self

    def renewed(self) -> Codec:
        """Return a codec with the same key and another salt."""
        return self

    def encode(self, data: bytes, *context: object) -> bytes:
        """Encode a record's data as it is written.

        Args:
            data: The data.
            context: The record's table, row and column, and the other data that it is bound to.
        """
        return data + zlib.crc32(data).to_bytes(_CHECKSUM, "big")

    def decode(self, value: object, *context: object) -> bytes:
        """Decode a record's data from what was written.

        Raises:
            ValueError: If the record is damaged, or has another context or another key.
        """
        data = blob(value)[:-_CHECKSUM]
        if value != self.encode(data):
            raise ValueError("a record is damaged: its checksum differs")
        return data

    def encode_text(self, data: str, *context: object) -> str | bytes:
        """Encode a text as it is written."""
        return data

    def decode_text(self, value: object, *context: object) -> str:
        """Decode a text from what was written; see ``decode``."""
        return text(value)

    def lookup(self, data: str) -> str:
        """Return the value by which a text is looked up."""
        return data

    def digest(self, row: tuple[object, ...]) -> int:
        """Return a keyed digest of a table's name and a row's columns; 0 without a key."""
        return 0

    def mark(self) -> bytes | None:
        """Return the key's mark, behind the salt, which does not reveal it; None without a key."""
        return None


class Encryption(Codec):
    """The codec of an encrypted store.

    Args:
        key: The app's key, 32 bytes.
        salt: The store's salt; empty before it has one.

    Raises:
        MissingExtraError: If pyca/cryptography is not installed.
    """

    encrypted = True

    def __init__(self, key: bytes, salt: bytes = b"") -> None:
        with needs("encryption needs pyca/cryptography", extra="encryption"):
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        def derived(purpose: bytes) -> bytes:
            return HKDF(SHA256(), _BYTES, salt or None, b"fala store " + purpose).derive(key)

        self._key, self.salt = key, salt
        self._cipher = AESGCM(derived(b"records"))
        self._names = derived(b"names")
        self._rows = hashlib.blake2b(digest_size=_BYTES, key=derived(b"rows"))

    def of(self, record: object) -> Codec:
        return Encryption(self._key, record[:_SALT] if isinstance(record, bytes) else b"")

    def renewed(self) -> Codec:
        return Encryption(self._key, secrets.token_bytes(_SALT))

    def encode(self, data: bytes, *context: object) -> bytes:
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher.encrypt(nonce, data, ascii(context).encode())

    def decode(self, value: object, *context: object) -> bytes:
        from cryptography.exceptions import InvalidTag

        if not isinstance(value, bytes):
            raise ValueError("a record is not encrypted")
        try:
            data = self._cipher.decrypt(value[:_NONCE], value[_NONCE:], ascii(context).encode())
            return bytes(data)
        except (InvalidTag, ValueError) as error:
            raise ValueError("a record is damaged, or was written with another key") from error

    def encode_text(self, data: str, *context: object) -> bytes:
        return self.encode(data.encode(), *context)

    def decode_text(self, value: object, *context: object) -> str:
        return self.decode(value, *context).decode()

    def lookup(self, data: str) -> str:
        return hmac.new(self._names, data.encode(), hashlib.sha256).hexdigest()

    def digest(self, row: tuple[object, ...]) -> int:
        # Blobs come last and as bytes, because they would be four times as long as text.
        blobs = [cell for cell in row if isinstance(cell, bytes)]
        cells = [(len(cell),) if isinstance(cell, bytes) else cell for cell in row]
        digest = self._rows.copy()
        digest.update(ascii(cells).encode())
        digest.update(b"".join(blobs))
        return int.from_bytes(digest.digest(), "big")

    def mark(self) -> bytes:
        return self.salt + self.encode(_CHECK, *_MARK)


PLAIN = Codec()


def codec_of(key: Key | None) -> Codec:
    """Return the codec of a store's records.

    Args:
        key: A function that returns the key; None for a store that is not encrypted.

    Raises:
        DataError: If ``key`` cannot be called, or does not return 32 bytes.
        MissingExtraError: If pyca/cryptography is not installed.
    """
    if key is None:
        return PLAIN
    if not callable(key):
        raise DataError(f"key must be a function that returns {_BYTES} bytes, not {type_of(key)}")
    value = key()
    if not isinstance(value, bytes | bytearray) or len(value) != _BYTES:
        got = len(value) if isinstance(value, bytes | bytearray) else type_of(value)
        raise DataError(f"key must return {_BYTES} bytes, not {got}")
    return Encryption(bytes(value))


def check_mark(path: object, mark: object, codec: Codec) -> None:
    """Compare a store's key with the app's key, before anything else is read or written.

    Args:
        path: The store's file, which errors name.
        mark: The store's mark; None if the store is not encrypted.
        codec: The codec with the app's key.

    Raises:
        DeviceError: If the keys differ.
    """
    if mark is None and not codec.encrypted:
        return
    if mark is None:
        raise DeviceError(
            f"{path}: is not encrypted; open it without a key, then encrypt it with rotate_key"
        )
    if not codec.encrypted:
        raise DeviceError(f"{path}: is encrypted; open it with its key (key=)")
    store_codec = codec.of(mark)
    try:
        valid = store_codec.decode(blob(mark)[len(store_codec.salt) :], *_MARK) == _CHECK
    except ValueError:
        valid = False
    if not valid:
        raise DeviceError(f"{path}: is encrypted under another key than the given one")


def text_columns(codec: Codec, identity: int, text: str) -> tuple[int, str, bytes | None]:
    """Return the columns of a text: the text itself, or its lookup value and the encrypted text."""
    if not codec.encrypted:
        return identity, text, None
    name = codec.lookup(text)
    return identity, name, codec.encode(text.encode(), "texts", identity, "sealed", name)


def decode_text(codec: Codec, identity: object, name: object, encrypted: object) -> str:
    """Return the text of a row."""
    value = encrypted if codec.encrypted else name
    return codec.decode_text(value, "texts", identity, "sealed", name)


def rotate(db: sqlite3.Connection, old: Codec, new: Codec) -> None:
    """Decrypt every record, and encrypt it under another key. Call it in a transaction.

    Args:
        db: The store's connection.
        old: The codec that reads the records.
        new: The codec that writes them.

    Raises:
        ValueError: If a record is damaged.
        LookupError: If an embedding belongs to no text.
    """
    names: dict[int, tuple[object, object]] = {}
    texts, vectors = [], []
    for row, name, encrypted in db.execute("SELECT id, text, sealed FROM texts"):
        texts.append(text_columns(new, row, decode_text(old, row, name, encrypted)))
        names[row] = name, texts[-1][1]
    put_rows(db, "texts", texts)
    for row, backbone, vector in db.execute("SELECT text, backbone, vector FROM embeddings"):
        before, after = (("embeddings", row, backbone, name) for name in names[row])
        vectors.append((row, backbone, new.encode(old.decode(vector, *before), *after)))
    put_rows(db, "embeddings", vectors)
    for table, column, context in _RECORDS:
        is_text = column == "label"
        read: Callable[..., object] = old.decode_text if is_text else old.decode
        write: Callable[..., object] = new.encode_text if is_text else new.encode
        size, columns = len(context), ", ".join(context)
        chosen = db.execute(f"SELECT {columns}, * FROM {table} WHERE {column} IS NOT NULL")
        at = [name for name, *_ in chosen.description].index(column, size)
        rows = []
        for row in chosen:
            record = write(read(row[at], table, *row[:size]), table, *row[:size])
            rows.append((*row[size:at], record, *row[at + 1 :]))
        put_rows(db, table, rows)
