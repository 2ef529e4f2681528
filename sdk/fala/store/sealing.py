"""Encryption at rest: every record sealed by itself, under a key that the app keeps.

AES-256-GCM (NIST SP 800-38D) with a nonce by chance a record, and the record's place (table, row,
column) as associated data, so that no record passes for another. A text is found by its HMAC-SHA256
(RFC 2104). Both keys come from the app's by HKDF (RFC 5869). Ids, times, counts, digests, names of
labels and adapters, and the vendor's bundles stay readable; a whole older file that is put back is
not noticed.
By pyca/cryptography, the extra ``encryption``, which is loaded when a key is first used.

The key is the app's to keep, where the system keeps secrets. With keyring::

    def key() -> bytes:
        known = keyring.get_password("my app", "fala")
        if known is None:
            known = os.urandom(32).hex()
            keyring.set_password("my app", "fala", known)
        return bytes.fromhex(known)

    device = fala.Device.open(folder, key=key)
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable

from fala.errors import DataError, DeviceError, MissingExtraError

#: What gives the app's key, 32 bytes.
Key = Callable[[], bytes]

_BYTES = 32
_NONCE = 12
_CHECK = b"fala"


class Plain:
    """A store that is not encrypted."""

    sealed = False

    def close(self, place: str, data: bytes) -> bytes:
        """What is written for a record's data."""
        return data

    def open(self, place: str, data: bytes) -> bytes:
        """A record's data of what was written.

        Raises:
            ValueError: It was written elsewhere, changed, or under another key.
        """
        return data

    def name(self, text: str) -> str:
        """What a text is found by."""
        return text

    def mark(self) -> str:
        """What tells the key that a store was written under."""
        return ""


class Sealed(Plain):
    """A store that is encrypted.

    Args:
        key: The app's key, 32 bytes.

    Raises:
        MissingExtraError: pyca/cryptography is not installed.
    """

    sealed = True

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

    def close(self, place: str, data: bytes) -> bytes:
        """See ``Plain``."""
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher.encrypt(nonce, data, place.encode())

    def open(self, place: str, data: bytes) -> bytes:
        """See ``Plain``."""
        from cryptography.exceptions import InvalidTag

        try:
            return bytes(self._cipher.decrypt(data[:_NONCE], data[_NONCE:], place.encode()))
        except (InvalidTag, ValueError) as error:
            raise ValueError("a record that is damaged, or of another key") from error

    def name(self, text: str) -> str:
        """See ``Plain``."""
        return hmac.new(self._names, text.encode(), hashlib.sha256).hexdigest()

    def mark(self) -> str:
        """See ``Plain``."""
        return self.close(_place_of_mark(), _CHECK).hex()


PLAIN = Plain()


def seal_of(key: Key | None) -> Plain:
    """What seals a store's records.

    Args:
        key: Gives the key; None for a store that is not encrypted.

    Raises:
        DataError: It cannot be called, or does not give 32 bytes.
        MissingExtraError: pyca/cryptography is not installed.
    """
    if key is None:
        return PLAIN
    if not callable(key):
        raise DataError(f"key is a function that gives {_BYTES} bytes, not a {type(key).__name__}")
    given = key()
    if not isinstance(given, bytes | bytearray) or len(given) != _BYTES:
        size = f" of {len(given)}" if isinstance(given, bytes | bytearray) else ""
        raise DataError(f"key gives {_BYTES} bytes, not {type(given).__name__}{size}")
    return Sealed(bytes(given))


def check_mark(path: object, mark: str | None, seal: Plain) -> None:
    """Compare a store's key with the one that is given; before anything else is read or written.

    Args:
        path: The store's file, for errors.
        mark: What the store says; None or empty where it is not encrypted.
        seal: What is to read it.

    Raises:
        DeviceError: They differ.
    """
    if not mark and not seal.sealed:
        return
    if not mark:
        raise DeviceError(
            f"{path}: is not encrypted; open it without a key, and encrypt it with rotate_key"
        )
    if not seal.sealed:
        raise DeviceError(f"{path}: is encrypted; open it with its key=")
    try:
        right = seal.open(_place_of_mark(), bytes.fromhex(mark)) == _CHECK
    except ValueError:
        right = False
    if not right:
        raise DeviceError(f"{path}: is encrypted under another key than the one given")


def _place_of_mark() -> str:
    return "settings/sealed"


# The records of the store's tables


def text_of(seal: Plain, identity: object, name: object, sealed: object) -> object:
    """A text of its row: it lies in ``text``, or sealed beside its digest there."""
    if not seal.sealed:
        return name
    return _opened(seal, f"texts/{identity}/sealed", sealed).decode()


def columns_of_text(seal: Plain, identity: int, text: str) -> tuple[int, str, bytes | None]:
    """A text's row."""
    place = f"texts/{identity}/sealed"
    return identity, seal.name(text), seal.close(place, text.encode()) if seal.sealed else None


def label_of(seal: Plain, identity: object, value: object) -> object:
    """A label of its column."""
    if value is None or not seal.sealed:
        return value
    return _opened(seal, f"examples/{identity}/label", value).decode()


def column_of_label(seal: Plain, identity: int, label: str | None) -> str | bytes | None:
    """A label's column."""
    if label is None or not seal.sealed:
        return label
    return seal.close(f"examples/{identity}/label", label.encode())


def made_of(seal: Plain, table: str, row: object, by: object, value: object) -> object:
    """An embedding, or logits, of a row."""
    return _opened(seal, f"{table}/{row}/{by}", value) if seal.sealed else value


def column_of_made(seal: Plain, table: str, row: int, by: str, value: bytes) -> bytes:
    """An embedding's column, or that of logits."""
    return seal.close(f"{table}/{row}/{by}", value)


def compiled_of(seal: Plain, backbone: object, value: object) -> object:
    """What a user's texts were compiled to, of a row."""
    return _opened(seal, f"prompts/{backbone}", value) if seal.sealed else value


def column_of_compiled(seal: Plain, backbone: str, value: bytes) -> bytes:
    """The column of what a user's texts were compiled to."""
    return seal.close(f"prompts/{backbone}", value)


def slot_row_of(seal: Plain, row: tuple[object, ...], columns: str) -> tuple[object, ...]:
    """A slot's row with its weights opened."""
    if not seal.sealed:
        return row
    names = [name.strip() for name in columns.split(",")]
    return tuple(
        _opened(seal, f"slots/{row[0]}/{name}", value) if _is_weight(name, value) else value
        for name, value in zip(names, row, strict=True)
    )


def columns_of_slot(seal: Plain, row: dict[str, object]) -> dict[str, object]:
    """A slot's row with its weights sealed."""
    return {
        name: seal.close(f"slots/{row['name']}/{name}", value)
        if isinstance(value, bytes) and seal.sealed
        else value
        for name, value in row.items()
    }


def _is_weight(name: str, value: object) -> bool:
    return value is not None and name in ("weight", "bias", "buckets", "lexical", "prompt")


def _opened(seal: Plain, place: str, value: object) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a record that is not encrypted")
    return seal.open(place, value)
