"""The one door for a release or an adapter that is new to a device.

The checks come in this order: the signature, so that an unsigned file is not read further; the
digests of the files; the audit of the model and tokenizer; and, in a child process, edge cases and
the vendor's probes. Only then is the release loaded in this process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from fala.backbones.external import Encoders
from fala.base.errors import BundleMismatchError, BundleSignatureError
from fala.bundle.manifest import Manifest
from fala.bundle.reading import Bundle
from fala.bundle.signature import check_signature
from fala.slots.installing import COPIES, ReleaseFiles
from fala.slots.release import Release, open_bundle
from fala.slots.validation import validate

#: The origin that a release must have: the owner of a key, of 32 bytes, that has signed it; or a
#: ``"repository"`` that has verified it already. None accepts any origin.
Origin = bytes | Literal["repository"] | None


def admit(
    path: Path, origin: Origin, encoders: Encoders, releases: ReleaseFiles = COPIES
) -> Release:
    """Admit a release.

    Args:
        path: The release's file.
        origin: The origin that the release must have.
        encoders: The app's own encoders.
        releases: Where releases come from, with what is known about their validation.

    Returns:
        The release. It is validated when its backbone is loaded, which may also raise a
        ``BundleError`` or an ``EncoderError``.

    Raises:
        BundleSignatureError: If the release was not signed by the key.
        BundleMismatchError: If the bundle is only a backbone, or an adapter.
        BundleError: If the release cannot be trusted.
        EncoderError: If the app's encoder is a different one, or failed.
    """
    bundle = _open(path, origin)
    if bundle.base is not None:
        raise BundleMismatchError(
            f"{bundle.path}: this is an adapter for the backbone {bundle.base[:12]}, not a "
            "release; load it beside a release with that backbone (Device.load_adapter)"
        )
    signed = origin is not None
    known = releases.knows(bundle.digest, signed=signed)
    return Release.of(bundle, lambda: validate(bundle, encoders, signed=signed, known=known))


def admit_loaded(
    path: Path, origin: Origin, encoders: Encoders, releases: ReleaseFiles = COPIES
) -> Release:
    """Admit a release that is to be kept, and load it; see ``admit``.

    It is loaded because a release that does not load, or does not predict, must not be kept. A
    release that was already validated for other devices of this kind is not loaded again.
    """
    release = admit(path, origin, encoders, releases)
    if not releases.knows(release.bundle.digest, signed=origin is not None):
        release.backbone.load()
    return release


def admit_adapter(path: Path, origin: Origin, base: Release) -> Release:
    """Admit an adapter for a release; see ``admit``.

    Raises:
        BundleSignatureError: If the adapter was not signed by the key.
        BundleMismatchError: If the bundle is not an adapter, or is for another backbone.
        BundleError: If the adapter cannot be trusted.
    """
    bundle = _open(path, origin)
    if bundle.base is None:
        raise BundleMismatchError(
            f"{bundle.path}: this is a release, not an adapter; install it with Device.replace"
        )
    return Release.of_adapter(bundle, base)


def _open(path: Path, origin: Origin) -> Bundle:
    """Open a bundle, held in memory, with the signature that it must have."""
    manifest = check_signature(path, origin) if isinstance(origin, bytes) else None
    bundle = open_bundle(path, hold=True)
    if manifest is not None and Manifest.from_json(manifest) != bundle.manifest:
        raise BundleSignatureError(f"{bundle.path}: the file changed while it was read; try again")
    return bundle
