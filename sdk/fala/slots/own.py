"""A release that an app makes itself, without a vendor: its labels, and the encoder that it has.

The head knows nothing: its logits are the same for all texts, and all is learned from the user. The
scales are others than around a vendor's head, which is most of what a user needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fala.backbones.external import ExternalEncoder, OwnEncoder
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
from fala.text.ngrams import BUCKETS

#: Scales of the embedding, of n-grams and of the bias around a head of zeros, and the mixing
#: weight, as users of no table chose them (``device_sim/results/README.md``). The head's logits are
#: constant, so there is no slope. N-grams make a model before a new encoder has encoded any text,
#: and lower the error rate beside a weak one.
BLOCK_SCALE, WORDS_SCALE, BIAS_SCALE, TRUST = 3.0, 3.0, 1.0, 0.7
#: The most logits of a head with n-grams: 64 KB of a file each.
MOST_WITH_WORDS = 32
#: The noise of a rating, as a share of its range.
RATING_NOISE = 0.25
#: The name of a rating.
RATING_NAME = "rating"


@dataclass(frozen=True, eq=False)
class OwnRelease:
    """A release without a vendor, to be written.

    Attributes:
        encoder: The app's encoder.
        task: The kind of examples.
        labels: The labels, or the rating's name.
        link: The meaning of the logits.
        words: Whether n-grams count, too, as far as the examples are texts and their labels few.
    """

    encoder: OwnEncoder
    task: str
    labels: tuple[HeadLabel, ...]
    link: Link
    words: bool = True

    @property
    def head(self) -> Head:
        """The head: zeros, and of a rating the middle of its range."""
        logits = self.link.count(self.labels)
        middle = (self.link.low + self.link.high) / 2 if isinstance(self.link, Rating) else 0.0
        weight = np.zeros((logits, self.encoder.dimension), np.float32)
        bias = np.full(logits, middle, np.float32)
        lexical = None
        if self.words and self.encoder.texts and logits <= MOST_WITH_WORDS:
            # All n-grams count the same: a user's texts are too few to tell which are rare.
            weights = np.zeros((logits, BUCKETS), np.float32)
            lexical = Lexical(np.ones(BUCKETS, np.float32), weights)
        return Head(self.task, self.labels, weight, bias, lexical=lexical, link=self.link)

    @contextmanager
    def written(self) -> Iterator[Path]:
        """Write it to a temporary file: the same labels and encoder make the same bytes.

        Raises:
            DataError: A label or the encoder's name cannot be in a file, or the disk is full.
            BundleError: The labels are too many, or too long.
        """
        head = self.head
        blocks = (BLOCK_SCALE,) if head.lexical is None else (BLOCK_SCALE, WORDS_SCALE)
        scales = Scales(blocks, 0.0, BIAS_SCALE, TRUST)
        with temporary_folder() as folder:
            path = folder / "own.fala"
            details = {"scales": [scales.to_details()]}
            write_for_encoder(path, self.encoder.name, head, self.encoder.probes, details)
            yield path


def on_encoder(task: Task, encoder: OwnEncoder, *, named: bool) -> OwnRelease:
    """A device's labels on another encoder of the app's, whose function the folder then has.

    Args:
        task: The device's own task.
        encoder: The encoder.
        named: Whether the app has named it.

    Raises:
        UsageError: The device takes releases that a vendor has signed alone.
        DataError: An installed release has another encoder of this name.
        EncoderError: The encoder fails.
    """
    folder = task.folder
    if folder.store.settings.admission().key is not None:
        raise UsageError(
            "this device was created with trust=: it takes releases that the vendor has signed, "
            "and no encoder of your own"
        )
    active = opened(task)
    for digest in folder.store.slots.bundles():
        bundle = open_bundle(bundle_path(folder.path, digest))
        if bundle.encoder == encoder.name:
            _check_same(bundle, encoder, named=named)
    before = active.release.bundle.encoder
    folder.encoders.add(encoder.name, encoder.function, encoder.name if before is None else before)
    head, words = active.head, folder.store.texts.kept
    return OwnRelease(encoder, head.task, head.labels, head.link, words)


def with_labels(task: Task, labels: Sequence[HeadLabel]) -> OwnRelease | None:
    """A device's release with further labels; None where it has them all.

    Args:
        task: The device's own task.
        labels: Labels, or tags; those that it has are ignored.

    Raises:
        DataError: One is a text that spells no integer, and the device's are integers.
        UsageError: The device has a vendor's release, or a rating.
    """
    snapshot = opened(task)
    release, head = snapshot.release, snapshot.head
    if not release.own:
        raise UsageError(
            f"the labels of {release.name} come with the vendor's release: a replacement by one "
            "with more labels adds them"
        )
    if isinstance(head.link, Rating):
        raise UsageError(f"this device has {head.link.described(head.labels)}, and no labels")
    find = finder(head.labels)
    added = [typed(str(label), head.labels) for label in labels if find(label) is None]
    if len(set(map(type, (*head.labels, *added)))) > 1:
        raise DataError(
            f"this device's labels are integers, {named(head.labels)}, and an added one is not"
        )
    if not added:
        return None
    bundle = release.bundle
    probes = dict(zip(*bundle.probes, strict=True))
    texts = head.lexical is not None
    encoder = OwnEncoder(
        bundle.manifest.name, bundle.manifest.dimension, probes=probes, texts=texts
    )
    return OwnRelease(encoder, head.task, (*head.labels, *added), head.link)


def _check_same(bundle: Bundle, encoder: OwnEncoder, *, named: bool) -> None:
    """Check that an encoder is the one of its name that a release was made for.

    Raises:
        DataError: It is another one, or that cannot be known.
        EncoderError: The encoder fails.
    """
    name, dimension = encoder.name, bundle.manifest.dimension
    advice = "tell the encoders apart by their names, as encoder={'name 2': encode}"
    if dimension != encoder.dimension:
        raise DataError(
            f"this device has had an encoder {name!r} of {counted(dimension, 'dimension')}, and "
            f"this one has {encoder.dimension}; {advice}"
        )
    inputs, expected = bundle.probes
    if inputs and encoder.function is not None:
        try:
            ExternalEncoder(name, dimension, encoder.function).check(inputs, expected)
        except EncoderError as error:
            raise DataError(
                f"this device has another encoder of the name {name!r}; {advice}"
            ) from error
    elif not named:
        raise DataError(
            f"this device has an encoder {name!r} already, and whether this is the same one "
            f"cannot be known; {advice}"
        )
