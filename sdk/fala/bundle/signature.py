"""A vendor's signature of one release: Ed25519 over its manifest, in a file beside the bundle.

The manifest has the digest of every other file, the product and the version, so that its signature
covers the bundle. The signature is in a file beside the bundle, ``x.fala.sig``. So a signed release
has the same bytes and digest as the unsigned one, and a signature by another key does not change
the bundle. It is checked before the rest of the bundle is parsed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from fala.base.errors import BundleSignatureError, DataError, needs, type_of
from fala.base.files import bytes_or_file
from fala.bundle.archive import read_index
from fala.bundle.reading import named_errors, read_manifest

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

# The suffix of a signature's name, after the bundle's.
_SUFFIX = ".sig"

#: An Ed25519 public key: its 32 bytes, its PEM, or the path of a file that holds either.
Trust = str | bytes | os.PathLike[str]

FORMAT = 1
_KEY_BYTES = 32
_SIGNATURE_BYTES = 64
# A key or a signature is a few hundred bytes.
_MAX_FILE_BYTES = 1 << 14
_PEM = "-----BEGIN"
# Other signatures by the same key cannot be mistaken for one of a release.
_CONTEXT = b"fala release, signed manifest, format 1\n"


def packed_manifest(path: str | os.PathLike[str]) -> bytes:
    """Return a bundle's manifest as it was packed, without parsing anything else of the bundle.

    Raises:
        BundleError: The file is missing, or its archive cannot be read.
    """
    with named_errors(path), Path(path).open("rb") as stream:
        return read_manifest(stream, read_index(stream))


def signature_file(bundle: str | os.PathLike[str]) -> Path:
    """Return the path of a bundle's signature, which is beside it."""
    return Path(f"{os.fspath(bundle)}{_SUFFIX}")


def message_of(manifest: bytes) -> bytes:
    """Return the bytes that are signed."""
    return _CONTEXT + manifest


def check_signature(path: str | os.PathLike[str], trust: Trust) -> bytes:
    """Check that a bundle's manifest was signed by a key.

    Args:
        path: The bundle; its signature is beside it.
        trust: The key; see ``Trust``.

    Returns:
        The signed manifest; the installed bundle must have the same one.

    Raises:
        BundleSignatureError: There is no signature, or it is by another key or of another bundle.
        BundleError: The bundle cannot be read.
        DataError: ``trust`` is no key.
        MissingExtraError: pyca/cryptography is not installed.
    """
    key = public_key_of(trust)
    manifest = packed_manifest(path)
    from cryptography.exceptions import InvalidSignature

    with named_errors(path):
        signer, signature = _read_signature(signature_file(path))
        if signer != key.public_bytes_raw():
            raise BundleSignatureError(
                f"signed by another key ({signer.hex()[:16]}...), not by the trusted one "
                f"({key.public_bytes_raw().hex()[:16]}...)"
            )
        try:
            key.verify(signature, message_of(manifest))
        except InvalidSignature as error:
            raise BundleSignatureError(
                "its signature is not of this bundle: one of the two was changed"
            ) from error
    return manifest


def public_key_of(trust: Trust) -> Ed25519PublicKey:
    """Load an Ed25519 public key.

    Raises:
        DataError: ``trust`` is no key.
        MissingExtraError: pyca/cryptography is not installed.
    """
    with needs("a signature cannot be checked here", extra="ota"):
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    if isinstance(trust, str) and trust.lstrip().startswith(_PEM):
        data = trust.lstrip().encode(errors="replace")
    else:
        data = bytes_or_file(trust, "trust (an Ed25519 public key)", _MAX_FILE_BYTES)
    try:
        if len(data) == _KEY_BYTES:
            return Ed25519PublicKey.from_public_bytes(data)
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise DataError(
            f"trust is an Ed25519 public key, as its {_KEY_BYTES} bytes, as PEM, or as a file of "
            f"either: {error}"
        ) from error
    if not isinstance(key, Ed25519PublicKey):
        raise DataError(f"trust must be an Ed25519 public key, not {type_of(key)}")
    return key


def key_bytes(trust: Trust) -> bytes:
    """Return a key's 32 bytes; see ``public_key_of``."""
    return public_key_of(trust).public_bytes_raw()


def _read_signature(path: Path) -> tuple[bytes, bytes]:
    """Return the public key that a signature claims, and the signature."""
    try:
        with path.open("rb") as stream:
            content = json.loads(stream.read(_MAX_FILE_BYTES))
    except FileNotFoundError as error:
        raise BundleSignatureError(
            f"not signed: {path.name} is not beside it (fala-export sign makes it)"
        ) from error
    except (ValueError, RecursionError) as error:
        raise BundleSignatureError(f"{path.name} is not a signature: it is not JSON") from error
    try:
        if content["format"] != FORMAT:
            raise BundleSignatureError(
                f"{path.name} is of format {content['format']!r:.40}; this SDK reads {FORMAT}: "
                "update fala"
            )
        signer, signature = bytes.fromhex(content["key"]), bytes.fromhex(content["signature"])
    except (TypeError, KeyError, ValueError) as error:
        raise BundleSignatureError(f"{path.name} is not a signature: {error!r:.80}") from error
    if len(signer) != _KEY_BYTES or len(signature) != _SIGNATURE_BYTES:
        raise BundleSignatureError(f"{path.name} is not a signature: its parts have other lengths")
    return signer, signature
