"""The two slots of a device: installed bundles as files, and their rows in the store."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fala.bundle.archive import write_archive
from fala.bundle.format import MANIFEST
from fala.bundle.reading import Bundle
from fala.bundle.signature import Trust, check_signature
from fala.errors import BundleError, BundleMismatchError, BundleSignatureError, DataError, counted
from fala.files import keep_private, write_atomically
from fala.model.heads import Head, PersonalModel, Vectors
from fala.model.links import PerTag
from fala.solver.judge import public_threshold
from fala.store.records import FitRecord, LexicalRecord, SlotRecord

#: The folder of a device that holds its bundles.
BUNDLES = "bundles"


def open_release(
    path: Path, *, hold: bool = False, trust: Trust | None = None
) -> tuple[Bundle, Head]:
    """Open a bundle that must have a head.

    Args:
        path: The bundle's file.
        hold: See ``Bundle.open``.
        trust: The key that must have signed it; None requires no signature.

    Raises:
        BundleSignatureError: It was not signed by the key.
        BundleMismatchError: It is a backbone only, or an adapter.
        BundleError: It cannot be trusted.
    """
    bundle, head = open_any(path, hold=hold, trust=trust)
    if bundle.base is not None:
        raise BundleMismatchError(
            f"{bundle.path}: an adapter for the backbone {bundle.base[:12]}, not a release; load "
            "it beside a release with that backbone (Device.load_adapter)"
        )
    return bundle, head


def open_adapter(
    path: Path, *, hold: bool = False, trust: Trust | None = None
) -> tuple[Bundle, Head]:
    """Open an adapter's bundle; see ``open_release``.

    Raises:
        BundleSignatureError: It was not signed by the key.
        BundleMismatchError: It is no adapter.
        BundleError: It cannot be trusted.
    """
    try:
        bundle, head = open_any(path, hold=hold, trust=trust)
    except BundleError as error:
        if isinstance(error.__cause__, FileNotFoundError):  # a sample release is no adapter
            raise BundleError(f"{path}: no such file") from error.__cause__
        raise
    if bundle.base is None:
        raise BundleMismatchError(
            f"{bundle.path}: a release, not an adapter; install it with Device.replace"
        )
    return bundle, head


def open_any(path: Path, *, hold: bool = False, trust: Trust | None = None) -> tuple[Bundle, Head]:
    """Open a release, or an adapter; see ``open_release``."""
    # First, so that an unsigned file is not read further.
    signed = None if trust is None else check_signature(path, trust)
    bundle = Bundle.open(path, hold=hold)
    if signed is not None and bundle.contents()[MANIFEST] != signed:
        raise BundleSignatureError(f"{bundle.path}: it was changed while it was read")
    head = bundle.head()
    if head is None:
        raise BundleMismatchError(
            f"{bundle.path}: a backbone without a head; a device needs a release "
            "(fit a head with fala_export.fit_head and write it with fala_export.write_release)"
        )
    return bundle, head


def bundle_path(device: Path, digest: str) -> Path:
    """Where a device keeps a bundle."""
    # By content: installing a bundle never touches the file of another.
    return device / BUNDLES / f"{digest}.fala"


def install(bundle: Bundle, device: Path) -> Bundle:
    """Write a bundle to the device.

    Args:
        bundle: One that is held is written as it was verified, even if its file has changed.
        device: The device's folder.

    Returns:
        The installed bundle.

    Raises:
        BundleDigestError: The source, of a bundle that is not held, changed meanwhile.
        OSError: It cannot be written.
    """
    digest = bundle.digest
    target = bundle_path(device, digest)
    # An existing file may be damaged: then it is replaced.
    with contextlib.suppress(BundleError):
        if (existing := Bundle.open(target)).digest == digest:
            return existing
    # These bytes are verified already.
    contents = bundle.contents()

    def write(temporary: Path) -> None:
        write_archive(temporary, contents)
        keep_private(temporary)

    write_atomically(target, write)
    return Bundle(target, bundle.manifest)


def model_digest(bundle: Bundle, model: PersonalModel) -> str:
    """SHA-256 of backbone, head and personal weights: the provenance of logits."""
    digest = hashlib.sha256()
    for part in (bundle.backbone_digest, bundle.head_digest, *model.head.labels):
        digest.update(part.encode())
    digest.update(model.weight.astype("<f4").tobytes())
    digest.update(model.bias.astype("<f4").tobytes())
    if model.lexical is not None:
        # Plus 0: a head whose labels were reversed has -0 where a stored model has 0.
        digest.update((model.lexical + 0.0).astype("<f4").tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Change:
    """The next personal model of a slot, to be written in one transaction.

    Attributes:
        model: The personal model.
        threshold: Its decision threshold; of tags one each.
        loss: Its leave-one-out cross-entropy on the labelled examples; None if unknown.
        embeddings: Embeddings of the model's backbone to store with it, by text.
        fit: The record of its fit; None if no example can be added to that.
    """

    model: PersonalModel
    threshold: PerTag = 0.0
    loss: float | None = None
    embeddings: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    fit: FitRecord | None = None


def slot_record(
    name: str,
    bundle: Bundle,
    change: Change,
    teachers: tuple[str, str] | None = None,
) -> SlotRecord:
    """A slot's row for an installed bundle and a personal model.

    Args:
        name: The slot.
        bundle: The bundle.
        change: The personal model.
        teachers: See ``SlotRecord``.
    """
    model = change.model
    return SlotRecord(
        name=name,
        bundle=bundle.digest,
        backbone=bundle.backbone_digest,
        weight=model.weight,
        bias=model.bias,
        model=model_digest(bundle, model),
        teachers=teachers,
        threshold=change.threshold,
        labels=model.head.labels,
        lexical=lexical_record(model),
        loss=change.loss,
    )


def vendor_record(name: str, bundle: Bundle, head: Head, positive: str | None = None) -> SlotRecord:
    """A slot's row with the vendor's own model, to which nothing was fitted.

    Args:
        name: The slot.
        bundle: The bundle.
        head: Its head.
        positive: The label, of two, whose F1 the threshold is for; None takes the second.
    """
    threshold = public_threshold(head.link, head.position(positive))
    return slot_record(name, bundle, Change(head.vendor_model(), threshold))


def lexical_record(model: PersonalModel) -> LexicalRecord | None:
    """The n-gram weights of a model that differ from the vendor's; None without n-grams."""
    vendor = model.head.lexical
    if vendor is None or model.lexical is None:
        return None
    touched = np.flatnonzero((model.lexical != vendor.weight).any(axis=0))
    return LexicalRecord(touched.astype(np.uint16), model.lexical[:, touched])


def lexical_weight(record: LexicalRecord | None, head: Head) -> Vectors | None:
    """A model's weights of n-grams, shape (C, buckets); see ``lexical_record``.

    Raises:
        DataError: The record does not fit the head.
    """
    vendor = head.lexical
    if (record is None) != (vendor is None):
        raise DataError("weights of n-grams where the head has none, or none where it has some")
    if record is None or vendor is None:
        return None
    if len(record.weight) != len(vendor.weight):
        raise DataError(
            f"weights of n-grams for {counted(len(record.weight), 'logit')}, the head has "
            f"{len(vendor.weight)}"
        )
    if len(record.buckets) and int(record.buckets[-1]) >= vendor.weight.shape[1]:
        raise DataError("weights of n-grams beyond the head's buckets")
    weight = vendor.weight.copy()
    weight[:, record.buckets] = record.weight
    return weight
