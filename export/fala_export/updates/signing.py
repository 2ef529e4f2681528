"""Sign single files; see ``fala.bundle.signature``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fala import Bundle
from fala.bundle.signature import FORMAT, message_of, packed_manifest, signature_file
from fala_export.base.checks import check_outputs
from fala_export.base.files import write_file
from fala_export.updates.keys import read_key


def sign_file(bundle: Path, key: Path, passphrase: bytes | None = None) -> dict[str, Any]:
    """Write a bundle's signature next to it.

    Args:
        bundle: The release, which is verified first.
        key: The private key's file.
        passphrase: Passphrase that decrypts the key.

    Returns:
        The paths, the public key, the product and the version.

    Raises:
        BundleError: The bundle cannot be trusted.
        ExportError: The key cannot be used.
    """
    file = signature_file(bundle)
    check_outputs([file], [], [key])
    private = read_key(key, passphrase)
    opened = Bundle.open(bundle)
    public = private.public_key().public_bytes_raw()
    signature = private.sign(message_of(packed_manifest(bundle)))
    content = {"format": FORMAT, "key": public.hex(), "signature": signature.hex()}
    write_file(file, json.dumps(content, indent=2).encode() + b"\n")
    return {
        "bundle": str(bundle), "signature": str(file), "key": public.hex(),
        "product": opened.manifest.product, "version": opened.manifest.version,
    }  # fmt: skip
