"""The one door for a release or an adapter that is new to a device.

In this order: its signature, so that an unsigned file is not read further; the digests of its
files; the audit of its model and tokenizer; and, in a child process, edge cases and the vendor's
probes. Only then is it loaded here.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from fala.backbones.external import Encoders
from fala.base.errors import BundleMismatchError, BundleSignatureError
from fala.bundle.manifest import Manifest
from fala.bundle.reading import Bundle
from fala.bundle.signature import Trust, check_signature
from fala.slots.installing import COPIES, ReleaseFiles
from fala.slots.release import Release, open_bundle
from fala.slots.validation import validate


@dataclass(frozen=True)
class Signed:
    """How a release's origin is known.

    Attributes:
        trust: The key that must have signed it; None requires no signature.
        verified: Whether it came from a repository that has verified it.
    """

    trust: Trust | None = None
    verified: bool = False

    @property
    def signed(self) -> bool:
        """Whether an admitted release is signed by a key that the device trusts."""
        return self.verified or self.trust is not None


def admit(
    path: Path,
    origin: Signed,
    encoders: Encoders,
    releases: ReleaseFiles = COPIES,
    installed: Container[str] = (),
) -> Release:
    """Admit a release.

    Args:
        path: Its file.
        origin: How its origin is known.
        encoders: The app's own encoders.
        releases: Where releases come from, with what is known about their validation.
        installed: Digests of the releases that were installed on the device before.

    Returns:
        The release. It is validated when its backbone is loaded, which raises an error of the last
        two kinds, too.

    Raises:
        BundleSignatureError: It was not signed by the key.
        BundleMismatchError: It is a backbone only, or an adapter.
        BundleError: It cannot be trusted.
        EncoderError: The app's encoder is another one, or failed.
    """
    bundle = _open(path, origin)
    if bundle.base is not None:
        raise BundleMismatchError(
            f"{bundle.path}: an adapter for the backbone {bundle.base[:12]}, not a release; load "
            "it beside a release with that backbone (Device.load_adapter)"
        )
    signed, ran = origin.signed, bundle.digest in installed
    known = releases.knows(bundle.digest, signed=signed)
    return Release.of(
        bundle, lambda: validate(bundle, encoders, signed=signed, known=known, installed=ran)
    )


def admit_loaded(
    path: Path, origin: Signed, encoders: Encoders, releases: ReleaseFiles = COPIES
) -> Release:
    """Admit a release that is to be kept, and load it; see ``admit``.

    It is loaded because a release that does not load, or does not predict, must not be kept. One
    that was validated for other devices, for which that would matter as much, is not.
    """
    release = admit(path, origin, encoders, releases)
    if not releases.knows(release.bundle.digest, signed=origin.signed):
        release.backbone.load()
    return release


def admit_adapter(path: Path, origin: Signed, base: Release) -> Release:
    """Admit an adapter for a release; see ``admit``.

    Raises:
        BundleSignatureError: It was not signed by the key.
        BundleMismatchError: It is no adapter, or for another backbone.
        BundleError: It cannot be trusted.
    """
    bundle = _open(path, origin)
    if bundle.base is None:
        raise BundleMismatchError(
            f"{bundle.path}: a release, not an adapter; install it with Device.replace"
        )
    return Release.of_adapter(bundle, base)


def _open(path: Path, origin: Signed) -> Bundle:
    """A bundle that is held, with the signature that it must have."""
    manifest = None
    if origin.trust is not None and not origin.verified:
        manifest = check_signature(path, origin.trust)
    bundle = open_bundle(path, hold=True)
    if manifest is not None and Manifest.from_json(manifest) != bundle.manifest:
        raise BundleSignatureError(f"{bundle.path}: it was changed while it was read")
    return bundle
