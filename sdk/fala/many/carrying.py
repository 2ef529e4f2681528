"""Carry one device after another over to a release, in any process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

from fala.backbones import OnnxEncoder
from fala.backbones.external import Encoders, Functions
from fala.base.errors import BundleDigestError, FalaError, WorseModelError
from fala.bundle.reading import Bundle
from fala.device import Device
from fala.many.cache import EncodingCache, cached
from fala.many.replaced import ReplacedAll
from fala.personal.gather import Reading
from fala.personal.replace import Terms
from fala.personal.run import Budget
from fala.slots.admit import admit, admit_loaded
from fala.slots.folder import Snapshot
from fala.slots.installing import ReleaseFiles
from fala.slots.release import Release, open_bundle
from fala.slots.switching import opened
from fala.slots.validation import VALIDATED, needs_signature

#: The folder of a device, and its key.
KeyedFolder: TypeAlias = tuple[Path, bytes | None]
#: The folder and result of a device; an error if no device can be replaced.
Outcome: TypeAlias = tuple[Path, ReplacedAll | FalaError]

#: Bytes of embeddings that a process keeps, enough for 29,000 texts of 1,152 numbers.
_CACHE_BYTES = 1 << 27


@dataclass
class Carrying:
    """Carries devices over; see ``replace_all`` for the fields. Other processes get a copy.

    Attributes:
        functions: The app's encoders.
        own: The name of the app's next encoder, if there is no release.
        admitted: The release's digest, and whether the release has something that only a signed one
            may have, once it is admitted.
    """

    release: Path | None
    releases: ReleaseFiles
    budget: Budget
    terms: Terms
    functions: Functions | None
    own: str
    dimension: int | None
    adapters: Mapping[str, Path]
    admitted: tuple[str, bool] = ("", False)
    _loaded: Release | None = field(default=None, init=False)

    def __getstate__(self) -> dict[str, Any]:
        # What this process has loaded stays in this process.
        return {each.name: getattr(self, each.name) for each in fields(self) if each.init}

    def admit(self) -> str:
        """Admit the release, which audits and validates it unless it is already kept for devices.

        Returns:
            The name of the release; the encoder's name if there is no release.

        Raises:
            BundleError: If the release cannot be trusted.
        """
        if self.release is None:
            return self.own
        origin, encoders = self.terms.origin, Encoders(self._encoder)
        release = admit_loaded(self.release, origin, encoders, self.releases)
        self.admitted = release.bundle.digest, needs_signature(release.bundle)
        return release.name

    def __call__(self, item: KeyedFolder) -> Outcome:
        """Carry a device over; an error of that device is an outcome."""
        path, key = item
        try:
            if (release := self._load()) is not None:
                self._check(release.bundle)
                self._check(open_bundle(release.bundle.path))
        except FalaError as error:
            return path, error
        try:
            return path, self._carried(path, key)
        except WorseModelError:
            return path, ReplacedAll(refused=1)
        except Exception as error:
            return path, ReplacedAll.failing(path, error)

    def close(self) -> None:
        """Take the cached embeddings from the backbone, which other devices may use."""
        release, self._loaded = self._loaded, None
        if release is not None and isinstance(backbone := release.backbone.load(), OnnxEncoder):
            backbone.cached = None

    @cached_property
    def _cache(self) -> EncodingCache:
        return EncodingCache(_CACHE_BYTES)

    @cached_property
    def _encoder(self) -> Functions | None:
        return cached(self.functions, self._cache)

    def _load(self) -> Release | None:
        """Load the release once for all devices of this process; None for an app's encoder."""
        if self.release is None or self._loaded is not None:
            return self._loaded
        digest, needed = self.admitted
        VALIDATED[digest] = needed
        encoders = Encoders(self._encoder)
        release = admit(self.release, self.terms.origin, encoders, self.releases)
        if isinstance(backbone := release.backbone.load(), OnnxEncoder):
            # No encoder of an app can have this name.
            backbone.cached = partial(self._cache.encode, backbone="\0")
        self._loaded = release
        return release

    @cached_property
    def _previous(self) -> dict[str, Bundle]:
        """The devices' previous releases, which would otherwise be read for each device."""
        return {}

    def _check(self, bundle: Bundle) -> None:
        """Check that the release's file is the one that was admitted.

        Raises:
            BundleDigestError: If it is another one.
        """
        if bundle.digest != self.admitted[0]:
            raise BundleDigestError(
                f"{bundle.path}: the file was changed meanwhile; run this again"
            )

    def _is_new(self, bundle: Bundle) -> bool:
        """Return whether a device's release is the new one, or is for the app's new encoder."""
        if self.release is None:
            return bundle.encoder == self.own
        return bundle.digest == self.admitted[0]

    def _carried(self, path: Path, key: bytes | None) -> ReplacedAll:
        before = self._cache.encoded
        with Device.open(
            path, key=None if key is None else lambda: key, encoder=self._encoder,
            releases=self.releases,
        ) as device:  # fmt: skip
            snapshot = opened(device._own)
            bundle = snapshot.release.bundle
            self._previous[bundle.digest] = bundle
            if self._is_new(bundle):
                budget = _left(snapshot, self.budget)
                if budget is None:
                    return ReplacedAll(already=1)
                report = device.refine(budget)
                return ReplacedAll.of("refined", report, self._cache.encoded - before)
            earlier = device._own.previous(snapshot)
            if earlier is not None and self._is_new(earlier.release.bundle):
                return ReplacedAll(went_back=1)
            tasks, terms = device._folder.store.slots.adapters(), self.terms
            report = device.replace(
                self.release, self.budget, accept=terms.accept, trust=terms.origin,
                encoder=None if self.release else self._encoder, dimension=self.dimension,
                allow_older=terms.allow_older,
                adapters={task: file for task, file in self.adapters.items() if task in tasks},
            )  # fmt: skip
            return ReplacedAll.of("replaced", report, self._cache.encoded - before)


def _left(snapshot: Snapshot, budget: Budget) -> Budget | None:
    """Return what a device's release may still encode of a budget; None if nothing is left."""
    reading = Reading(snapshot)
    encoded = reading.embeddings(snapshot.backbone)
    pending = sum(text not in encoded for text in reading.texts())
    left = budget.passes(bool(snapshot.release.bridges)) - len(encoded)
    if left <= 0 or not pending or snapshot.release.static or not reading.store.texts.kept():
        return None
    return Budget(left, budget.seconds)
