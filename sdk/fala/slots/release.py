"""A release on a device: its bundle, verified, and all that a device reads of it, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from fala.backbones import Backbone, LazyBackbone, OnnxEncoder
from fala.backbones.backbone import AdaptedBackbone
from fala.bundle.format import WORD_VECTORS
from fala.bundle.reading import Bundle
from fala.errors import BundleFormatError, BundleMismatchError, DimensionError, counted
from fala.model.bridge import Bridge
from fala.model.heads import Head
from fala.model.prior import PopulationPrior


@dataclass(frozen=True, eq=False)
class Release:
    """A release, or an adapter; nothing in it changes.

    Attributes:
        bundle: Its bundle, verified.
        head: Its head.
        bridges: Its bridges, by the digests of the backbones that they start from.
        prior: Its population prior, for the head's order of the labels; None without one.
        backbone: Its backbone, loaded at its first use.
    """

    bundle: Bundle
    head: Head
    bridges: Mapping[str, Bridge]
    prior: PopulationPrior | None
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
        transformer = bundle.manifest.kind != WORD_VECTORS
        return cls(
            bundle, head_of(bundle), bundle.bridges(), bundle.prior(),
            LazyBackbone(load, transformer=transformer),
        )  # fmt: skip

    @classmethod
    def of_adapter(cls, bundle: Bundle, base: Release) -> Release:
        """Read an adapter's bundle.

        Args:
            bundle: The bundle, verified.
            base: The release that it adapts.

        Raises:
            BundleMismatchError: It is for another backbone, or no adapter.
            DimensionError: Its head is for embeddings of another length.
        """
        bundle.check_base(base.bundle)
        dimension = base.bundle.manifest.dimension
        if bundle.manifest.dimension != dimension:
            raise DimensionError(
                f"{bundle.path}: for embeddings of "
                f"{counted(bundle.manifest.dimension, 'dimension')}; its backbone gives {dimension}"
            )

        def load() -> Backbone:
            encoder = base.backbone.loaded
            if not isinstance(encoder, OnnxEncoder):
                raise BundleFormatError(
                    f"{bundle.path}: an adapter for a backbone that takes none; a transformer may"
                )
            return AdaptedBackbone(encoder, bundle.adapter())

        backbone = LazyBackbone(load, transformer=True)
        return cls(bundle, head_of(bundle), bundle.bridges(), bundle.prior(), backbone)

    def installed(self, bundle: Bundle) -> Release:
        """The same release, of its installed file."""
        return replace(self, bundle=bundle)

    def loading(self, executor: Executor) -> Release:
        """The same release, whose backbone is being loaded in another thread."""
        loading = executor.submit(lambda: self.backbone.loaded)
        transformer = self.backbone.is_transformer
        return replace(self, backbone=LazyBackbone(loading.result, transformer=transformer))

    @property
    def name(self) -> str:
        """The backbone's name."""
        return self.bundle.manifest.name

    @property
    def static(self) -> bool:
        """Whether encoding costs no forward pass."""
        return not self.backbone.is_transformer

    @property
    def sources(self) -> set[str]:
        """Backbones whose embeddings it can use: its own, and those that its bridges map from."""
        return {self.bundle.backbone_digest, *self.bridges}

    def prior_for(self, labels: tuple[str, ...]) -> PopulationPrior | None:
        """Its population prior, for the labels in another order."""
        if self.prior is None or self.head.labels == labels:
            return self.prior
        return self.prior.reversed()


def head_of(bundle: Bundle) -> Head:
    """A bundle's head.

    Raises:
        BundleMismatchError: It is a backbone only.
        BundleError: The head cannot be read.
    """
    head = bundle.head()
    if head is None:
        raise BundleMismatchError(
            f"{bundle.path}: a backbone without a head; a device needs a release "
            "(fit a head with fala_export.fit_head and write it with fala_export.write_release)"
        )
    return head
