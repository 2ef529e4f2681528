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
from fala.bundle.reading import Bundle
from fala.errors import BundleError, DataError, counted
from fala.files import keep_private, write_atomically
from fala.model.heads import Head, PersonalModel, Vectors
from fala.model.links import PerTag
from fala.solver.judge import public_threshold
from fala.store.records import FitRecord, LexicalRecord, SlotRecord

#: The folder of a device that holds its bundles.
BUNDLES = "bundles"


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
        fit=change.fit,
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
