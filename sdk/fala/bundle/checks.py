"""Digests of a bundle's files, and what they are checked against."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import BinaryIO

from fala.bundle import format as layout
from fala.bundle.archive import Entry, read_entry
from fala.bundle.manifest import Manifest
from fala.errors import BundleDigestError, BundleFilesError, BundleFormatError

_CHUNK = 1 << 20


def digest_of(stream: BinaryIO, entry: Entry) -> str:
    """SHA-256 of a file in an archive."""
    # In pieces, so that verifying takes no memory; a file that ends early has another digest.
    digest = hashlib.sha256()
    stream.seek(entry.offset)
    for done in range(0, entry.size, _CHUNK):
        digest.update(stream.read(min(_CHUNK, entry.size - done)))
    return digest.hexdigest()


def read_verified(stream: BinaryIO, name: str, entry: Entry, manifest: Manifest) -> bytes:
    """Read a file of an archive, whole.

    Raises:
        BundleDigestError: It is not what the vendor packed.
    """
    data = read_entry(stream, entry)
    check_digest(name, hashlib.sha256(data).hexdigest(), manifest)
    return data


def check_digest(name: str, digest: str, manifest: Manifest) -> None:
    """Raise BundleDigestError if a file is not what the vendor packed."""
    if digest != manifest.files[name]:
        raise BundleDigestError(
            f"{name} is not what the vendor packed (SHA-256 differs); download the bundle again"
        )


def check_file_list(present: set[str], manifest: Manifest) -> None:
    """Raise BundleFilesError if the archive's files are not the manifest's.

    Raises:
        BundleFormatError: If there are files that the manifest's version does not know.
    """
    required = set(manifest.files) | set(layout.BACKBONE_FILES[manifest.kind])
    if manifest.task is not None:
        required |= {layout.HEAD_WEIGHT, layout.HEAD_BIAS}
    if any(name.startswith(layout.LEXICAL) for name in manifest.files):
        if manifest.format_version < layout.FORMAT_VERSION:  # an older SDK would not see them
            raise BundleFormatError(
                f"a lexical view in a bundle of format version {manifest.format_version}"
            )
        required |= set(layout.LEXICAL_FILES)
    if missing := required - present:
        raise BundleFilesError(f"missing from the archive: {', '.join(sorted(missing))}")
    if extra := present - set(manifest.files):
        raise BundleFilesError(f"not in the manifest: {', '.join(sorted(extra))}")


def digest_over(parts: list[str], files: Mapping[str, str], *folders: str) -> str:
    """SHA-256 over some texts and the digests of the files of some folders."""
    chosen = {name: digest for name, digest in files.items() if name.startswith(folders)}
    return hashlib.sha256(json.dumps([parts, chosen], sort_keys=True).encode()).hexdigest()
