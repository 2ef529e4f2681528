"""What the devices of one process share: the parts of a release, and its backbone, loaded once.

Both are found by the digests of what they were read from, and go when the last device that uses
them is closed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any
from weakref import WeakValueDictionary

from fala.backbones import Backbone, OnnxEncoder
from fala.backbones.backbone import AdaptedBackbone
from fala.backbones.external import Encoders
from fala.backbones.onnx_encoder import give_back
from fala.base.errors import BundleFormatError, BundleMismatchError
from fala.base.files import Identity, identity_of
from fala.base.forks import keep_in_forks
from fala.bundle.reading import Bundle
from fala.model.bridge import Bridge
from fala.model.heads import Head


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a release, or an adapter, but its backbone.

    Attributes:
        bundle: The bundle that they were read from, verified.
        head: Its head.
        bridges: Its bridges, by the digests of the backbones that they start from.
        files: The files that were verified to be this bundle; each device's is another, or a link.
    """

    bundle: Bundle
    head: Head
    bridges: Mapping[str, Bridge]
    files: set[Identity] = field(default_factory=set)


class _Shared:
    """The tables. A fork gets its own: a session waits for threads that a fork does not copy."""

    def __init__(self) -> None:
        self.lock = RLock()
        # One a backbone: who opens a device, or loads another backbone, does not wait.
        self.loading: defaultdict[str, Any] = defaultdict(RLock)
        self.parts: WeakValueDictionary[str, Parts] = WeakValueDictionary()
        self.backbones: WeakValueDictionary[str, Backbone] = WeakValueDictionary()


_shared = _Shared()
keep_in_forks(_shared, _Shared.__init__)


def open_bundle(path: Path, *, hold: bool = False) -> Bundle:
    """Open a bundle; one that an open device has verified, in the same file, is not read again.

    What is read of it later is verified then, as of every bundle.

    Args:
        path: The bundle's file.
        hold: See ``Bundle.open``; not done where the file is known.

    Raises:
        BundleError: See ``Bundle.open``.
    """
    identity = identity_of(path)
    with _shared.lock:
        for parts in _shared.parts.values():
            if identity in parts.files:
                return parts.bundle.at(path)
    bundle = Bundle.open(path, hold=hold)
    with _shared.lock:
        known = _shared.parts.get(bundle.digest)
        if known is not None and identity is not None:
            known.files.add(identity)
    return bundle


def parts_of(bundle: Bundle) -> Parts:
    """The parts of a bundle.

    Args:
        bundle: The bundle, verified.

    Raises:
        BundleMismatchError: It is a backbone only.
        BundleError: A part of it cannot be read, or does not fit the others.
    """
    identity = identity_of(bundle.path)
    with _shared.lock:
        parts = _shared.parts.get(bundle.digest)
        if parts is None:
            # Of the bundle without its bytes, if it holds them.
            at_path = bundle.at(bundle.path)
            parts = Parts(at_path, head_of(bundle), bundle.bridges())
            _shared.parts[bundle.digest] = parts
        if identity is not None:
            parts.files.add(identity)
    return parts


def backbone_of(bundle: Bundle, encoders: Encoders | None = None) -> Backbone:
    """A bundle's backbone, which every device of this process uses that has the same.

    Args:
        bundle: The bundle, verified.
        encoders: The app's own encoders, which no other device uses.

    Raises:
        BundleError: It cannot be loaded.
        EncoderError: The app's encoder is another one, or failed.
    """
    if bundle.external:
        return bundle.backbone(encoders)
    return _loaded(bundle.backbone_digest, bundle.backbone)


def adapted_backbone_of(bundle: Bundle, base: Backbone) -> Backbone:
    """An adapter's bundle on its backbone; see ``backbone_of``.

    Raises:
        BundleFormatError: The backbone takes no adapter.
        BundleError: The adapter cannot be read.
    """
    if not isinstance(base, OnnxEncoder):
        raise BundleFormatError(
            f"{bundle.path}: an adapter for a backbone that takes none; a transformer may"
        )
    return _loaded(bundle.backbone_digest, lambda: AdaptedBackbone(base, bundle.adapter()))


@contextmanager
def giving_back() -> Iterator[None]:
    """Return the memory of backbones that no device uses any more after the block."""
    before = len(_shared.backbones)
    yield
    if len(_shared.backbones) < before:
        give_back()


def head_of(bundle: Bundle) -> Head:
    """A bundle's head.

    Raises:
        BundleMismatchError: It is a backbone only.
        BundleError: The head cannot be read.
    """
    head = bundle.head()
    if head is None:
        raise BundleMismatchError(
            f"{bundle.path}: a backbone without a head; a device needs a release (fit a head with "
            "fala_export.fit_head and write it with fala_export.write_release), or your own labels "
            "and encoder: Device.create(path, labels=[...], encoder=Bundle.open(...).backbone()"
            ".encode)"
        )
    return head


def _loaded(digest: str, load: Callable[[], Backbone]) -> Backbone:
    """The backbone of a digest; one thread loads it."""
    with _shared.loading[digest]:
        backbone = _shared.backbones.get(digest)
        if backbone is None:
            backbone = _shared.backbones[digest] = load()
    return backbone
