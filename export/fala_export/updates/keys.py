"""Make and read Ed25519 keys as PEM files, and keep keyrings of signers."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner

from fala_export.base.errors import ExportError
from fala_export.base.files import write_file

#: The extension of a private key's file, and of its public half in the same folder.
PRIVATE, PUBLIC = ".pem", ".pub"
# Bytes that are read from a key's file, which has a few hundred.
_LONGEST_FILE = 1 << 16


def make_key(path: Path, passphrase: bytes | None = None) -> Ed25519PrivateKey:
    """Make a key: a PEM file that only its owner can read, and its public half next to it.

    Args:
        path: File of the private half, which must not exist; the file of the public half ends in
            ``.pub``.
        passphrase: Passphrase that encrypts the private half.

    Raises:
        ExportError: The file exists.
        OSError: The file cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        encryption = serialization.BestAvailableEncryption(passphrase)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    public = path.with_suffix(PUBLIC)
    if path == public:
        raise ExportError(f"{path}: {PUBLIC} is the extension of the public half; use {PRIVATE}")
    exists = "already exists, and a key is never overwritten; choose another file"
    if os.path.lexists(public):
        raise ExportError(f"{public}: {exists}")
    try:
        # The mode is set at creation, so that the file is never readable by others.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise ExportError(f"{path}: {exists}") from error
    with os.fdopen(handle, "wb") as stream:
        stream.write(pem)
        stream.flush()
        os.fsync(stream.fileno())
    public_pem = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    write_file(public, public_pem)
    return key


def read_key(path: Path, passphrase: bytes | None = None) -> Ed25519PrivateKey:
    """Read a private key.

    Raises:
        ExportError: The file is not a private key, or the passphrase is wrong.
        OSError: The file cannot be read.
    """
    with path.open("rb") as stream:
        pem = stream.read(_LONGEST_FILE)
    try:
        try:
            key = serialization.load_pem_private_key(pem, passphrase)
        except TypeError:
            if not passphrase:
                raise
            key = serialization.load_pem_private_key(pem, None)  # The key is not encrypted.
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ExportError(f"{path}: cannot be read as a private key: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ExportError(f"{path}: is not an Ed25519 key; make one with fala-export key")
    return key


class Keyring:
    """The available private keys, and the folder of new ones.

    Args:
        paths: Files of keys, and folders of such files.
        new: Folder of new keys.
        passphrase: Passphrase that decrypts the encrypted keys, and encrypts new ones.

    Attributes:
        new: Folder of new keys.
        signers: Signers by key id.
        unread: Files that could not be read, with the reason.

    Raises:
        ExportError: A path does not exist.
    """

    def __init__(self, paths: Sequence[Path], new: Path, passphrase: bytes | None = None) -> None:
        self.new, self._passphrase = new, passphrase
        self.signers: dict[str, CryptoSigner] = {}
        self.unread: list[str] = []
        for path in paths:
            if not path.exists():
                raise ExportError(f"{path}: there is no such key or folder of keys")
            for file in sorted(path.glob(f"*{PRIVATE}")) if path.is_dir() else [path]:
                self._read(file)

    def make(self, role: str, count: int) -> dict[Path, CryptoSigner]:
        """Make new keys for a role, and return their signers by file."""
        made: dict[Path, CryptoSigner] = {}
        for number in itertools.count(1):
            if len(made) == count:
                break
            file = self.new / f"{role}-{number}{PRIVATE}"
            if not file.exists() and not file.with_suffix(PUBLIC).exists():
                made[file] = self._add(make_key(file, self._passphrase))
        return made

    def find(self, ids: Iterable[str]) -> list[CryptoSigner]:
        """Return the available signers among the given key ids."""
        return [self.signers[key_id] for key_id in ids if key_id in self.signers]

    def _read(self, file: Path) -> None:
        try:
            self._add(read_key(file, self._passphrase))
        except ExportError as error:  # The key may belong to another role, with another passphrase.
            self.unread.append(str(error))

    def _add(self, key: Ed25519PrivateKey) -> CryptoSigner:
        signer = CryptoSigner(key)
        self.signers[signer.public_key.keyid] = signer
        return signer
