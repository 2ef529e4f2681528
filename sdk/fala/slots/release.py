"""A release: a verified and loaded file, and what the devices of one process share of it.

They share its content, and its backbone, which is loaded once. Both are found by the digests of
what they were read from, and are freed when the last device that uses them is closed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock
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
    """A release or an adapter; nothing in it changes.

    Attributes:
        bundle: The verified bundle.
        head: The release's head.
        backbone: The release's backbone, which is loaded at its first use.
    """

    bundle: Bundle
    head: Head
    backbone: LazyBackbone

    @classmethod
    def of(cls, bundle: Bundle, load: Callable[[], Backbone]) -> Release:
        """Read a release's bundle.

        Args:
            bundle: The verified bundle.
            load: A function that loads the backbone.

        Raises:
            BundleMismatchError: If the bundle is only a backbone.
            BundleError: If a part of the bundle cannot be read, or does not fit the others.
        """
        return cls(bundle, head_of(bundle), LazyBackbone(load))

    @classmethod
    def of_adapter(cls, bundle: Bundle, base: Release) -> Release:
        """Read an adapter's bundle.

        Args:
            bundle: The verified bundle.
            base: The release that the bundle adapts.

        Raises:
            BundleMismatchError: If the bundle is for another backbone, or is not an adapter.
            BundleFormatError: If the head is for embeddings of another length.
        """
        bundle.check_base(base.bundle)
        dimension = base.bundle.manifest.dimension
        if bundle.manifest.dimension != dimension:
            raise BundleFormatError(
                f"{bundle.path}: this adapter is for embeddings of "
                f"{counted(bundle.manifest.dimension, 'dimension')}, and its backbone gives "
                f"{dimension}"
            )

        def load() -> Backbone:
            backbone = base.backbone.load()
            if not isinstance(backbone, OnnxEncoder):
                raise BundleFormatError(
                    f"{bundle.path}: an adapter for a backbone that takes none; a transformer "
                    "takes one"
                )
            return _loaded(
                bundle.backbone_digest, lambda: AdaptedBackbone(backbone, bundle.adapter())
            )

        return cls(bundle, head_of(bundle), LazyBackbone(load))

    def loading(self, executor: Executor) -> Release:
        """Return the same release, whose backbone another thread is loading, if a thread starts."""
        try:
            loading = executor.submit(self.backbone.load)
        except RuntimeError:  # the backbone is then loaded at its first use
            return self
        return replace(self, backbone=LazyBackbone(loading.result))

    @property
    def bridges(self) -> Mapping[str, Bridge]:
        """The bridges, by the digests of the backbones that they start from."""
        return self.bundle.bridges()

    @property
    def own(self) -> bool:
        """Whether the app made the release itself, so that its head knows nothing of the labels."""
        return self.bundle.external and self.head.constant

    @property
    def name(self) -> str:
        """The product, the version and the backbone's name, as far as the vendor gives them."""
        return self.bundle.manifest.title

    @property
    def static(self) -> bool:
        """Whether encoding costs no forward pass, the currency of every budget."""
        return self.bundle.manifest.kind in VECTOR_TABLES

    @property
    def sources(self) -> set[str]:
        """The backbones whose embeddings the release can use: its own, and its bridges' sources."""
        return {self.bundle.backbone_digest, *self.bridges}


class _Shared:
    """The tables of what is shared; a fork gets its own, because it lacks a session's threads."""

    def __init__(self) -> None:
        self.lock = RLock()
        # One lock per bundle and backbone, so that threads that open or load another one do not
        # wait.
        self.loading: defaultdict[str, AbstractContextManager[object]] = defaultdict(RLock)
        # The contents of bundles by their digests, and by the files that were verified to be them;
        # every device has another file, or a link.
        self.contents: WeakValueDictionary[str, Content] = WeakValueDictionary()
        self.files: WeakValueDictionary[Identity, Content] = WeakValueDictionary()
        self.backbones: WeakValueDictionary[str, Backbone] = WeakValueDictionary()


_shared = _Shared()
keep_in_forks(_shared, _Shared.__init__)


def open_bundle(path: Path, *, hold: bool = False) -> Bundle:
    """Open a bundle; a file that an open device has already verified is not read again.

    Anything that is read from it later is verified then, as for every bundle.

    Args:
        path: The bundle's file.
        hold: Whether to keep the bytes in memory, unless the file is known.

    Raises:
        BundleError: If the bundle cannot be read, or is not what the vendor packed.
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
    """Return a bundle's backbone, which all devices of this process share.

    Args:
        bundle: The verified bundle.
        encoders: The app's own encoders, which no other device uses.

    Raises:
        BundleError: If the backbone cannot be loaded.
        EncoderError: If the app's encoder is a different one, or failed.
    """
    if bundle.external:
        return bundle.backbone(encoders)
    return _loaded(bundle.backbone_digest, bundle.backbone)


@contextmanager
def giving_back() -> Iterator[None]:
    """Return the memory of backbones that no device uses any more after the block."""
    before = len(_shared.backbones)
    yield
    if len(_shared.backbones) < before:
        give_back()


def head_of(bundle: Bundle) -> Head:
    """Return a bundle's head.

    Raises:
        BundleMismatchError: If the bundle is only a backbone.
        BundleError: If the head cannot be read.
    """
    head = bundle.head()
    if head is None:
        raise BundleMismatchError(
            f"{bundle.path}: this is a backbone without a head; a device needs a release "
            "(fala-export release writes one), or your own labels and encoder: "
            "Device.create(path, labels=[...], encoder=Bundle.open(...).backbone().encode)"
        )
    return head


def loading(digest: str) -> AbstractContextManager[object]:
    """Let only one thread of the process open a bundle, or load a backbone, with a digest."""
    return _shared.loading[digest]


def _loaded(digest: str, load: Callable[[], Backbone]) -> Backbone:
    """Return the backbone with a digest, which one thread loads."""
    with loading(digest):
        backbone = _shared.backbones.get(digest)
        if backbone is None:
            backbone = _shared.backbones[digest] = load()
    return backbone
