"""A release: a file, verified and loaded; and what the devices of one process share of it.

They share its content and its backbone, loaded once. Both are found by the digests of what they
were read from, and go when the last device that uses them is closed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock
from typing import Any
from weakref import WeakValueDictionary

from fala.backbones import Backbone, LazyBackbone, OnnxEncoder
from fala.backbones.backbone import AdaptedBackbone
from fala.backbones.external import Encoders
from fala.backbones.onnx_encoder import give_back
from fala.base.errors import BundleFormatError, BundleMismatchError, counted
from fala.base.files import Identity, identity_of
from fala.base.forks import keep_in_forks
from fala.bundle.content import Content
from fala.bundle.format import VECTOR_TABLES
from fala.bundle.reading import Bundle
from fala.model.bridge import Bridge
from fala.model.heads import Head


@dataclass(frozen=True, eq=False)
class Release:
    """A release, or an adapter; nothing in it changes.

    Attributes:
        bundle: Its bundle, verified.
        head: Its head.
        backbone: Its backbone, loaded at its first use.
    """

    bundle: Bundle
    head: Head
    backbone: LazyBackbone

    @classmethod
    def of(cls, bundle: Bundle, load: Callable[[], Backbone]) -> Release:
        """Read a release's bundle.

        Args:
            bundle: The bundle, verified.
            load: Loads its backbone.

        Raises:
            BundleMismatchError: It is a backbone only.
            BundleError: A part of it cannot be read, or does not fit the others.
        """
        transformer = bundle.manifest.kind not in VECTOR_TABLES
        return cls(bundle, head_of(bundle), LazyBackbone(load, transformer=transformer))

    @classmethod
    def of_adapter(cls, bundle: Bundle, base: Release) -> Release:
        """Read an adapter's bundle.

        Args:
            bundle: The bundle, verified.
            base: The release that it adapts.

        Raises:
            BundleMismatchError: It is for another backbone, or no adapter.
            BundleFormatError: Its head is for embeddings of another length.
        """
        bundle.check_base(base.bundle)
        dimension = base.bundle.manifest.dimension
        if bundle.manifest.dimension != dimension:
            raise BundleFormatError(
                f"{bundle.path}: for embeddings of "
                f"{counted(bundle.manifest.dimension, 'dimension')}; its backbone gives {dimension}"
            )

        def load() -> Backbone:
            return adapted_backbone_of(bundle, base.backbone.load())

        return cls(bundle, head_of(bundle), LazyBackbone(load, transformer=True))

    def loading(self, executor: Executor) -> Release:
        """The same release, whose backbone is being loaded in another thread, if one starts."""
        try:
            loading = executor.submit(self.backbone.load)
        except RuntimeError:  # loaded at its first use
            return self
        transformer = self.backbone.is_transformer
        return replace(self, backbone=LazyBackbone(loading.result, transformer=transformer))

    @property
    def bridges(self) -> Mapping[str, Bridge]:
        """Its bridges, by the digests of the backbones that they start from."""
        return self.bundle.bridges()

    @property
    def own(self) -> bool:
        """Whether the app made it itself: its head knows nothing of the labels."""
        return self.bundle.external and self.head.constant

    @property
    def name(self) -> str:
        """The product, the version and the backbone's name, as far as the vendor gives them."""
        return self.bundle.manifest.title

    @property
    def static(self) -> bool:
        """Whether encoding costs no forward pass."""
        return not self.backbone.is_transformer

    @property
    def sources(self) -> set[str]:
        """Backbones whose embeddings it can use: its own, and those that its bridges map from."""
        return {self.bundle.backbone_digest, *self.bridges}


class _Shared:
    """The tables. A fork gets its own: a session waits for threads that a fork does not copy."""

    def __init__(self) -> None:
        self.lock = RLock()
        # One for each bundle and backbone: who opens or loads another one does not wait.
        self.loading: defaultdict[str, Any] = defaultdict(RLock)
        # Of bundles: by their digests, and by the files that were verified to be them; each
        # device's is another, or a link.
        self.contents: WeakValueDictionary[str, Content] = WeakValueDictionary()
        self.files: WeakValueDictionary[Identity, Content] = WeakValueDictionary()
        self.backbones: WeakValueDictionary[str, Backbone] = WeakValueDictionary()


_shared = _Shared()
keep_in_forks(_shared, _Shared.__init__)


def open_bundle(path: Path, *, hold: bool = False) -> Bundle:
    """Open a bundle; one that an open device has verified, in the same file, is not read again.

    What is read of it later is verified then, as of every bundle.

    Args:
        path: The bundle's file.
        hold: Keep its bytes in memory, unless the file is known.

    Raises:
        BundleError: It cannot be read, or is not what the vendor packed.
    """
    identity = identity_of(path)
    with _shared.lock:
        known = None if identity is None else _shared.files.get(identity)
    if known is not None:
        return Bundle(path, known)
    bundle = Bundle.open(path, hold=hold)
    with _shared.lock:
        bundle.content = _shared.contents.setdefault(bundle.digest, bundle.content)
        if identity is not None and identity == identity_of(path):
            _shared.files[identity] = bundle.content
    return bundle


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
            f"{bundle.path}: a backbone without a head; a device needs a release (fala-export "
            "release writes one), or your own labels and encoder: Device.create(path, "
            "labels=[...], encoder=Bundle.open(...).backbone().encode)"
        )
    return head


def loading(digest: str) -> AbstractContextManager[object]:
    """Let one thread of the process open a bundle, or load a backbone, of a digest."""
    lock: AbstractContextManager[object] = _shared.loading[digest]
    return lock


def _loaded(digest: str, load: Callable[[], Backbone]) -> Backbone:
    """The backbone of a digest; one thread loads it."""
    with loading(digest):
        backbone = _shared.backbones.get(digest)
        if backbone is None:
            backbone = _shared.backbones[digest] = load()
    return backbone
