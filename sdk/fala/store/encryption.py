"""Encryption at rest: each record is encrypted by itself, under a key that the app keeps.

AES-256-GCM (NIST SP 800-38D) with a random nonce for each record. Its associated data is the
record's context: table, row, column, and the data that it belongs to. A label is bound to its text,
an embedding to its text, weights to the other columns of their slot. A text is looked up by its
HMAC-SHA256 (RFC 2104). All keys are derived by HKDF (RFC 5869) from the app's key and from a random
salt of the device, so that no record of another device is accepted. Ids, times, counts, digests,
names of labels and adapters, and the vendor's bundles stay readable. Changing them, or adding and
deleting rows, needs the key: see ``fala.store.digests``. The ciphers are those of
pyca/cryptography, the extra ``encryption``, which is loaded when a key is first used.

The app keeps the key in the system's key store. With keyring::

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
from fala.store.columns import blob, insert_rows, text

#: Returns the app's key, 32 bytes.
Key = Callable[[], bytes]

#: The encrypted columns of a slot, and those to which they are bound.
SLOT_WEIGHTS = ("weight", "bias", "buckets", "lexical")
BOUND_SLOT_COLUMNS = (
    "bundle", "backbone", "model", "teacher", "labels", "loss",
)  # fmt: skip
#: The columns of an example to which its label is bound.
LABEL_COLUMNS = ("document", "history", "labelled", "adapter")

#: The texts of an example, to which records computed from them are bound.
_TEXTS_OF_EXAMPLE = tuple(
    f"(SELECT {column} FROM examples WHERE id = example)" for column in ("document", "history")
)
#: The other encrypted records: table, columns of its key, the column, and the rest of its context.
_RECORDS = (
    ("examples", ("id",), "label", ("'label'", *LABEL_COLUMNS)),
    ("earlier_labels", ("example", "since"), "label", ("'label'", *_TEXTS_OF_EXAMPLE)),
    ("logits", ("example", "model"), "value", _TEXTS_OF_EXAMPLE),
    ("device", ("one",), "trust", ("'trust'",)),
    *(("slots", ("name",), name, (f"'{name}'", *BOUND_SLOT_COLUMNS)) for name in SLOT_WEIGHTS),
)

_BYTES = 32
_CHECKSUM = 4
_SALT = 16
_NONCE = 12
_CHECK = b"fala"
#: The mark's context.
_MARK = ("device", "one", "key_mark")


class Codec:
    """Writes the records of a store without encryption: bytes with a checksum, CRC-32."""

    encrypted = False
    salt = b""

    def of(self, record: object) -> Codec:
        """The codec of a store, by one of its records that begin with the salt."""
        return self

    def renewed(self) -> Codec:
        """A codec of the same key with another salt."""
        return self

    def encode(self, data: bytes, *context: object) -> bytes:
        """A record's data as it is written.

        Args:
            data: The data.
            context: The record's table, row and column, and the other data that it is bound to.
        """
        return data + zlib.crc32(data).to_bytes(_CHECKSUM, "big")

    def decode(self, value: object, *context: object) -> bytes:
        """A record's data from what was written.

        Raises:
            ValueError: It is damaged, has another context, or another key.
        """
        data = blob(value)[:-_CHECKSUM]
        if value != self.encode(data):
            raise ValueError("a record that is damaged: its checksum differs")
        return data

    def encode_text(self, data: str, *context: object) -> str | bytes:
        """A text as it is written."""
        return data

    def decode_text(self, value: object, *context: object) -> str:
        """A text from what was written; see ``decode``."""
        return text(value)

    def lookup(self, data: str) -> str:
        """The value by which a text is looked up."""
        return data

    def digest(self, row: tuple[object, ...]) -> int:
        """A keyed digest of a table's name and a row's columns; 0 without a key."""
        return 0

    def mark(self) -> bytes | None:
        """Identifies the key without revealing it, behind the salt; None without one."""
        return None


class Encryption(Codec):
    """Writes the records of an encrypted store.

    Args:
        key: The app's key, 32 bytes.
        salt: The store's; empty before it has one.

    Raises:
        MissingExtraError: pyca/cryptography is not installed.
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
            raise ValueError("a record that is not encrypted")
        try:
            data = self._cipher.decrypt(value[:_NONCE], value[_NONCE:], ascii(context).encode())
            return bytes(data)
        except (InvalidTag, ValueError) as error:
            raise ValueError("a record that is damaged, or of another key") from error

    def encode_text(self, data: str, *context: object) -> bytes:
        return self.encode(data.encode(), *context)

    def decode_text(self, value: object, *context: object) -> str:
        return self.decode(value, *context).decode()

    def lookup(self, data: str) -> str:
        return hmac.new(self._names, data.encode(), hashlib.sha256).hexdigest()

    def digest(self, row: tuple[object, ...]) -> int:
        # Blobs come last, as bytes: as text they would be four times as long.
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
        raise DataError(f"key must be a function that returns {_BYTES} bytes, not {type_of(key)}")
    value = key()
    if not isinstance(value, bytes | bytearray) or len(value) != _BYTES:
        got = len(value) if isinstance(value, bytes | bytearray) else type_of(value)
        raise DataError(f"key returns {_BYTES} bytes, not {got}")
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
    store_codec = codec.of(mark)
    try:
        valid = store_codec.decode(blob(mark)[len(store_codec.salt) :], *_MARK) == _CHECK
    except ValueError:
        valid = False
    if not valid:
        raise DeviceError(f"{path}: is encrypted under another key than the one given")


def text_columns(codec: Codec, identity: int, text: str) -> tuple[int, str, bytes | None]:
    """A text's row: the text in clear, or its lookup value and the encrypted text."""
    if not codec.encrypted:
        return identity, text, None
    name = codec.lookup(text)
    return identity, name, codec.encode(text.encode(), "texts", identity, "sealed", name)


def decode_text(codec: Codec, identity: object, name: object, encrypted: object) -> str:
    """The text of a row."""
    value = encrypted if codec.encrypted else name
    return codec.decode_text(value, "texts", identity, "sealed", name)


def rotate(db: sqlite3.Connection, old: Codec, new: Codec) -> None:
    """Decrypt every record, and encrypt it under another key. In a transaction.

    Args:
        db: The store's connection.
        old: Reads the records.
        new: Writes them.

    Raises:
        ValueError: A record is damaged.
        LookupError: An embedding belongs to no text.
    """
    names: dict[int, tuple[object, object]] = {}
    texts, vectors = [], []
    for row, name, encrypted in db.execute("SELECT id, text, sealed FROM texts"):
        texts.append(text_columns(new, row, decode_text(old, row, name, encrypted)))
        names[row] = name, texts[-1][1]
    insert_rows(db, "INSERT OR REPLACE INTO texts", texts)
    for row, backbone, vector in db.execute("SELECT text, backbone, vector FROM embeddings"):
        before, after = (("embeddings", row, backbone, name) for name in names[row])
        vectors.append((row, backbone, new.encode(old.decode(vector, *before), *after)))
    insert_rows(db, "INSERT OR REPLACE INTO embeddings", vectors)
    for table, keys, column, ending in _RECORDS:
        is_text = column == "label"
        read: Callable[..., object] = old.decode_text if is_text else old.decode
        write: Callable[..., object] = new.encode_text if is_text else new.encode
        context, size = ", ".join((*keys, *ending)), len(keys) + len(ending)
        chosen = db.execute(f"SELECT {context}, * FROM {table} WHERE {column} IS NOT NULL")
        at = [name for name, *_ in chosen.description].index(column, size)
        rows = []
        for row in chosen:
            record = write(read(row[at], table, *row[:size]), table, *row[:size])
            rows.append((*row[size:at], record, *row[at + 1 :]))
        insert_rows(db, f"INSERT OR REPLACE INTO {table}", rows)
