"""Ed25519 keys as PEM files, and keyrings of signers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner

from fala_export.base.errors import ExportError
from fala_export.base.files import write_file

#: The ending of a private key's file, and of the public half beside it.
PRIVATE, PUBLIC = ".pem", ".pub"
# Bytes that are read of a file with a key, which has some hundred.
_LONGEST_FILE = 1 << 16


def make_key(path: Path, passphrase: bytes | None = None) -> Ed25519PrivateKey:
    """Make a key: the private half as PEM, readable by its owner only, and the public half beside.

    Args:
        path: File of the private half, which must not exist; the public half's ends in ``.pub``.
        passphrase: Encrypts the private half.

    Raises:
        ExportError: The file exists.
        OSError: It cannot be written.
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
        raise ExportError(f"{path}: {PUBLIC} is the ending of the public half; use {PRIVATE}")
    if public.exists():
        raise ExportError(f"{public}: exists already; a key is never overwritten")
    try:
        # The mode is set at creation, so that the file is never readable by others.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise ExportError(f"{path}: exists already; a key is never overwritten") from error
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
        ExportError: It is not a private key, or the passphrase is wrong.
        OSError: It cannot be read.
    """
    try:
        with path.open("rb") as stream:
            key = _load(stream.read(_LONGEST_FILE), passphrase)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ExportError(f"{path}: cannot be read as a private key: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ExportError(f"{path}: not an Ed25519 key; make one with fala-export key")
    return key


class Keyring:
    """The available private keys, by their ids.

    Attributes:
        signers: Signers by key id.
        unread: Files that could not be read, with the reason.
    """

    def __init__(self, signers: Iterable[CryptoSigner] = ()) -> None:
        self.signers = {signer.public_key.keyid: signer for signer in signers}
        self.unread: list[str] = []

    @classmethod
    def read(cls, paths: Sequence[Path], passphrase: bytes | None = None) -> Keyring:
        """Read keys.

        Args:
            paths: Files of keys, and folders of them.
            passphrase: Decrypts the encrypted ones.

        Raises:
            ExportError: A path does not exist.
        """
        ring = cls()
        for path in paths:
            if not path.exists():
                raise ExportError(f"{path}: no such key, nor a folder of keys")
            files = sorted(path.glob(f"*{PRIVATE}")) if path.is_dir() else [path]
            for file in files:
                ring.add_file(file, passphrase)
        return ring

    def add_file(self, file: Path, passphrase: bytes | None) -> None:
        """Add a file's key; note a file that cannot be read."""
        try:
            self.add(read_key(file, passphrase))
        except ExportError as error:  # for example another role's, with another passphrase
            self.unread.append(str(error))

    def add(self, key: Ed25519PrivateKey) -> CryptoSigner:
        """Add a key."""
        signer = CryptoSigner(key)
        self.signers[signer.public_key.keyid] = signer
        return signer

    def find(self, ids: Iterable[str]) -> list[CryptoSigner]:
        """The available signers of some key ids."""
        return [self.signers[key_id] for key_id in ids if key_id in self.signers]


def _load(pem: bytes, passphrase: bytes | None) -> object:
    try:
        return serialization.load_pem_private_key(pem, passphrase)
    except TypeError:
        if not passphrase:
            raise
        return serialization.load_pem_private_key(pem, None)  # the key is not encrypted
