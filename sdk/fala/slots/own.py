"""A release that an app makes itself, without a vendor, from its labels and its own encoder.

The head knows nothing: its logits are the same for all texts, and everything is learned from the
user. Its prior scales differ from those around a vendor's head, which already has most of what a
user needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np

from fala.backbones.external import ExternalEncoder
from fala.base.errors import DataError, EncoderError, UsageError, counted
from fala.base.files import temporary_folder
from fala.bundle.reading import Bundle
from fala.bundle.writing import write_for_encoder
from fala.model.heads import Head, Lexical
from fala.model.labels import HeadLabel, finder, named, typed
from fala.model.links import Link, Rating
from fala.model.scales import Scales
from fala.slots.folder import Task
from fala.slots.installing import bundle_path
from fala.slots.release import open_bundle
from fala.slots.switching import opened
from fala.solver.fit import MANY
from fala.text.ngrams import BUCKETS

#: The prior scales of the embedding, of the n-grams and of the bias around a head of zeros, and the
#: mixing weight, as simulated users who are in none of the published tables chose them
#: (``device_sim/results/README.md``). The head's logits are constant, so there is no slope. N-grams
#: give a model before a new encoder has encoded any text, and lower the error rate beside a weak
#: encoder.
BLOCK_SCALE, NGRAMS_SCALE, BIAS_SCALE, MIXING = 3.0, 3.0, 1.0, 0.7
#: The most logits of a head with n-grams, each of which takes 64 KB of a file.
MOST_WITH_NGRAMS = 32
#: The standard deviation of a rating's noise, as a share of the rating's range.
RATING_NOISE = 0.25
#: The name of a rating in the head.
RATING_NAME = "rating"


@contextmanager
def own_release(
    encoder: ExternalEncoder, task: str, labels: tuple[HeadLabel, ...], link: Link, *, ngrams: bool
) -> Iterator[Path]:
    """Write a release without a vendor to a temporary file.

    Equal labels and encoders make equal bytes. The weights of the head are zero, and a rating's
    bias is the middle of its range.

    Args:
        encoder: The app's encoder.
        task: The kind of examples.
        labels: The labels, or the rating's name.
        link: The meaning of the logits.
        ngrams: Whether n-grams count as well, if the examples are texts and the labels are few.

    Raises:
        DataError: If a label or the encoder's name cannot be in a file, or the disk is full.
        BundleError: If the labels are too many or too long.
    """
    logits = link.count(labels)
    middle = (link.low + link.high) / 2 if isinstance(link, Rating) else 0.0
    weight = np.zeros((logits, encoder.dimension), np.float32)
    bias = np.full(logits, middle, np.float32)
    lexical: Lexical | None = None
    blocks: tuple[float, ...] = (BLOCK_SCALE,)
    if ngrams and encoder.texts and logits <= MOST_WITH_NGRAMS:
        # All n-grams count the same, because a user's texts are too few to tell which are rare.
        weights = np.zeros((logits, BUCKETS), np.float32)
        lexical = Lexical(np.ones(BUCKETS, np.float32), weights)
        blocks += (NGRAMS_SCALE,)
    head = Head(task, labels, weight, bias, lexical=lexical, link=link)
    # A table's first row serves fewer labels too, and the default rows follow its last one.
    scales = Scales(blocks, 0.0, BIAS_SCALE, MIXING, MANY)
    with temporary_folder() as folder:
        path = folder / "own.fala"
        details = {"scales": [scales.to_details()]}
        write_for_encoder(path, encoder.name, head, encoder.probes, details)
        yield path


def on_encoder(
    task: Task, encoder: ExternalEncoder, *, named: bool
) -> AbstractContextManager[Path]:
    """Write a release with a device's labels on another encoder, which the folder then uses.

    Args:
        task: The device's own task.
        encoder: The encoder.
        named: Whether the app has named the encoder.

    Raises:
        UsageError: If the device only takes releases that a vendor has signed.
        DataError: If an installed release has another encoder of this name.
        EncoderError: If the encoder fails.
    """
    folder = task.folder
    if folder.store.settings.admission().key is not None:
        raise UsageError(
            "this device was created with trust=, so it only takes releases that the vendor has "
            "signed, and no encoder of your own"
        )
    active = opened(task)
    for digest in folder.store.slots.bundles():
        bundle = open_bundle(bundle_path(folder.path, digest))
        if bundle.encoder == encoder.name:
            _check_same(bundle, encoder, named=named)
    before = active.release.bundle.encoder
    folder.encoders.add(encoder.name, encoder.function, encoder.name if before is None else before)
    head, ngrams = active.head, folder.store.texts.kept()
    return own_release(encoder, head.task, head.labels, head.link, ngrams=ngrams)


def with_labels(task: Task, labels: Sequence[HeadLabel]) -> AbstractContextManager[Path] | None:
    """Write a device's release with further labels; None if it has all of them.

    Args:
        task: The device's own task.
        labels: The labels or tags; those that the device has are ignored.

    Raises:
        DataError: If a label is a text that spells no integer, and the device's labels are
            integers.
        UsageError: If the device has a vendor's release, or a rating.
    """
    snapshot = opened(task)
    release, head = snapshot.release, snapshot.head
    if not release.own:
        raise UsageError(
            f"the labels of {release.name} come with the vendor's release, so none can be added "
            "here; replace it with a release that has more labels"
        )
    if isinstance(head.link, Rating):
        raise UsageError(
            f"this device has {head.link.described(head.labels)}, and no labels to add others to"
        )
    find = finder(head.labels)
    added = [typed(str(label), head.labels) for label in labels if find(label) is None]
    if len(set(map(type, (*head.labels, *added)))) > 1:
        raise DataError(
            f"this device's labels are integers, {named(head.labels)}, and an added label is not"
        )
    if not added:
        return None
    bundle = release.bundle
    probes = dict(zip(*bundle.probes, strict=True))
    texts = head.lexical is not None
    encoder = ExternalEncoder(
        bundle.manifest.name, bundle.manifest.dimension, None, probes=probes, texts=texts
    )
    return own_release(encoder, head.task, (*head.labels, *added), head.link, ngrams=texts)


def _check_same(bundle: Bundle, encoder: ExternalEncoder, *, named: bool) -> None:
    """Check that an encoder is the one of its name that a release was made for.

    Raises:
        DataError: If it is another encoder, or that cannot be known.
        EncoderError: If the encoder fails.
    """
    name, dimension = encoder.name, bundle.manifest.dimension
    advice = "tell the encoders apart by their names, as in encoder={'name 2': encode}"
    if dimension != encoder.dimension:
        raise DataError(
            f"this device already has an encoder {name!r} of {counted(dimension, 'dimension')}, "
            f"and this one has {encoder.dimension}; {advice}"
        )
    inputs, expected = bundle.probes
    if inputs and encoder.function is not None:
        try:
            encoder.check(inputs, expected)
        except EncoderError as error:
            raise DataError(
                f"this device already has another encoder of the name {name!r}; {advice}"
            ) from error
    elif not named:
        raise DataError(
            f"this device already has an encoder {name!r}, and whether this is the same one "
            f"cannot be known; {advice}"
        )
