"""Gather rows: a task's examples as features in one backbone's space, real or mapped."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fala.examples import CLASSIFICATION, Example, texts_of, unique_texts
from fala.model.bridge import Bridge, reachable
from fala.model.heads import Head, Vectors
from fala.model.losses import Floats
from fala.model.prior import PopulationPrior
from fala.personal.run import Run
from fala.slots.open_slot import OpenSlot
from fala.solver.training import Inputs, TrainingSet, blocks_of
from fala.store.embeddings import as_stored
from fala.store.records import StoredExample
from fala.store.store import Store

Embeddings = Mapping[str, Vectors]


class Snapshot:
    """A task's part of the store, each table read once for one operation.

    Args:
        store: The task's store.
        run: The operation; None for one that is neither limited nor reported.
        ids: Ids of the examples to read; None reads all.
        only: The examples, if they are read already.

    Attributes:
        store: See above.
        run: See above.
        ngrams: Rows of the n-grams of its texts.
        data: The store's count of changes of examples and labels.
    """

    def __init__(
        self,
        store: Store,
        run: Run | None = None,
        ids: Sequence[int] | None = None,
        only: list[StoredExample] | None = None,
    ) -> None:
        self.store = store
        self.data = store.slots.version().data
        self.run = Run() if run is None else run
        self.ngrams = self.run.ngrams(store)
        self._ids = ids
        self._examples = only
        self._embeddings: dict[str, dict[str, Vectors]] = {}

    def examples(self) -> list[StoredExample]:
        """All examples."""
        if self._examples is None:
            self._examples = self.store.examples.all(self._ids)
        return self._examples

    def embeddings(self, backbone: str) -> dict[str, Vectors]:
        """A backbone's embeddings of the examples' texts, by text."""
        if backbone not in self._embeddings:
            texts = None
            if self._ids is not None:
                texts = unique_texts(row.stored for row in self.examples())
            self._embeddings[backbone] = self.store.embeddings.get(backbone, texts)
        return self._embeddings[backbone]

    def add(self, backbone: str, embeddings: Embeddings) -> None:
        """Add embeddings before they are stored, rounded as in the store: later fits agree."""
        self.embeddings(backbone).update(as_stored(embeddings))


@dataclass(frozen=True, eq=False)
class Space:
    """The space that rows are gathered in: a head's, on its backbone.

    Attributes:
        head: The head.
        backbone: Digest of its backbone.
        prior: The release's population prior; None without one.
        bridges: Bridges that lead to the backbone, the worst first.
        scales: The release's scales of the fit's blocks; None without them.
        differences: Personal minus vendor logits of an earlier model, (C,), by example.
    """

    head: Head
    backbone: str
    prior: PopulationPrior | None
    bridges: Sequence[Bridge]
    scales: tuple[float, ...] | None
    differences: Mapping[int, NDArray[np.float32]]

    @classmethod
    def of_slot(cls, store: Store, slot: OpenSlot, earlier: OpenSlot | None) -> Space:
        """A slot's space; bridges may pass through the backbone of an earlier slot."""
        return cls(
            slot.model.head, slot.record.backbone, slot.prior(), cls._bridges(slot, earlier),
            slot.bundle.scales, old_differences(store, slot),
        )  # fmt: skip

    @classmethod
    def of_model(cls, slot: OpenSlot, earlier: OpenSlot | None, scales: tuple[float, ...]) -> Space:
        """A slot's space around its personal model, which is the start of the next fit."""
        head = slot.model.as_head()
        return cls(head, slot.record.backbone, None, cls._bridges(slot, earlier), scales, {})

    @staticmethod
    def _bridges(slot: OpenSlot, earlier: OpenSlot | None) -> list[Bridge]:
        if not slot.reads_plain:  # bridges estimate embeddings without a prompt
            return []
        bridges = slot.bundle.bridges()
        if earlier is None:
            return reachable(bridges, {}, "")
        return reachable(bridges, earlier.bundle.bridges(), earlier.bundle.backbone_digest)


@dataclass(frozen=True, eq=False)
class Rows:
    """All examples of a task, in one backbone's space.

    Attributes:
        snapshot: The data of the store.
        space: The space.
        ids: Ids of the m examples with a real or estimated input, one a row of ``training``.
        examples: The m examples.
        training: Their features and evidence.
        missing: The texts of each without an embedding, none twice; empty for a real input.
        pending: The other examples, which have no row before their texts are encoded.
        pending_missing: The texts of each pending example without an embedding.
    """

    snapshot: Snapshot
    space: Space
    ids: Sequence[int]
    examples: Sequence[Example]
    training: TrainingSet
    missing: Sequence[Sequence[str]]
    pending: Sequence[StoredExample]
    pending_missing: Sequence[Sequence[str]]

    @property
    def real(self) -> int:
        """How many examples have a real input."""
        return sum(not texts for texts in self.missing)

    @property
    def positive(self) -> int:
        """Position of the label, of two, whose F1 the threshold is for."""
        return self.space.head.position(self.snapshot.store.slots.positive())

    @property
    def has_evidence(self) -> bool:
        """Whether a row has a label or an old logit."""
        return bool(self.training.used.any())

    def labelled(self) -> list[int]:
        """Ids of the labelled examples, in the order of the rows."""
        return [self.ids[position] for position in np.flatnonzero(self.training.labelled).tolist()]

    def encoded(self) -> set[int]:
        """Ids of the examples whose embeddings are real."""
        return {row for row, missing in zip(self.ids, self.missing, strict=True) if not missing}

    def shares(self, ids: Collection[int]) -> Floats:
        """Labels of some examples as class shares or numbers, (n, C), by id."""
        return self.take(self.training.labels, ids)

    def take(self, numbers: Floats, ids: Collection[int]) -> Floats:
        """The rows of some examples, by id, of an array with a row an example, (n, C)."""
        positions = {row: position for position, row in enumerate(self.ids)}
        return numbers[[positions[row] for row in ids]]

    def pending_texts(self) -> list[str]:
        """All texts that have no embedding yet."""
        lists = (*self.missing, *self.pending_missing)
        return list(dict.fromkeys(text for texts in lists for text in texts))


def gather(snapshot: Snapshot, space: Space) -> Rows:
    """Gather rows from real embeddings where there are any, else from mapped ones.

    An example has a row if each of its texts has an embedding that is real or can be mapped. With
    an n-gram block every example with stored n-grams has a row: the mean of the other embeddings
    replaces a missing one, and only its n-grams distinguish it.
    """
    real = snapshot.embeddings(space.backbone)
    sources = [(bridge, snapshot.embeddings(bridge.source)) for bridge in space.bridges]
    sources = [(bridge, embeddings) for bridge, embeddings in sources if embeddings]
    encoded = set(real).union(*(embeddings for _, embeddings in sources))
    head = space.head
    by_ngrams = head.lexical is not None and snapshot.store.texts.ngrams_kept
    rows: list[StoredExample] = []
    pending: list[StoredExample] = []
    for row in snapshot.examples():
        complete = all(text in encoded for text in texts_of(row.stored))
        (rows if complete or by_ngrams else pending).append(row)
    examples = [row.stored for row in rows]
    # After a rollback some labels may exist only in a later release: they are not used.
    usable = head.link.usable([row.label for row in rows], head.labels)
    labels = head.label_shares(usable)
    differences = np.full(labels.shape, np.nan)
    for position, row in enumerate(rows):
        if row.id in space.differences:
            differences[position] = space.differences[row.id]
    inputs = _inputs(examples, head, real, sources)
    ngrams = head.words(examples, snapshot.ngrams)
    blocks = blocks_of(head, inputs, ngrams, space.prior)
    vendor = sum(block.logits() for block in blocks) + head.bias
    return Rows(
        snapshot,
        space,
        [row.id for row in rows],
        examples,
        TrainingSet(blocks, head.bias, labels, vendor + differences, head.link),
        [_missing(real, example) for example in examples],
        pending,
        [_missing(real, row.stored) for row in pending],
    )


@dataclass(frozen=True, eq=False)
class OldLogits:
    """The old personal model's logits of the examples that its backbone has encoded.

    Attributes:
        logits: The logits, (C,), by example.
        vendor: The vendor model's logits on that backbone, (C,), by example.
        embeddings: The old embeddings, by text, for clustering.
        head: The old head.
    """

    logits: dict[int, NDArray[np.float32]]
    vendor: dict[int, NDArray[np.float32]]
    embeddings: Embeddings
    head: Head

    def differences(self) -> dict[int, NDArray[np.float32]]:
        """Personal minus vendor's logits, by example."""
        return {row: value - self.vendor[row] for row, value in self.logits.items()}


def old_logits(snapshot: Snapshot, slot: OpenSlot) -> OldLogits:
    """The old logits of every example; see ``OldLogits``.

    For an example that the old backbone has not encoded, the difference of still older logits is
    passed on.
    """
    embeddings = snapshot.embeddings(slot.record.backbone)
    rows = [
        row
        for row in snapshot.examples()
        if all(text in embeddings for text in texts_of(row.stored))
    ]
    head = slot.model.head
    examples = [row.stored for row in rows]
    inputs, ngrams = head.inputs(examples, embeddings), head.words(examples, snapshot.ngrams)
    ids = [row.id for row in rows]
    logits = dict(zip(ids, slot.model.logits(inputs, ngrams), strict=True))
    vendor = dict(zip(ids, head.vendor_model().logits(inputs, ngrams), strict=True))
    for row, difference in old_differences(snapshot.store, slot).items():
        if row not in logits and difference.shape == head.bias.shape:
            logits[row], vendor[row] = difference, np.zeros_like(difference)
    return OldLogits(logits, vendor, embeddings, head)


def old_differences(store: Store, slot: OpenSlot) -> dict[int, NDArray[np.float32]]:
    """Personal minus vendor logits of the old model that a slot refers to, (C,), by example."""
    if slot.record.teachers is None:
        return {}
    teacher, vendor = slot.record.teachers
    vendor_logits = store.logits.get(vendor)
    size = len(slot.model.bias)  # a release that added labels has other logits
    return {
        row: value - vendor_logits[row]
        for row, value in store.logits.get(teacher).items()
        if row in vendor_logits and len(value) == len(vendor_logits[row]) == size
    }


def _mapped(
    real: Embeddings, sources: Sequence[tuple[Bridge, Embeddings]], texts: set[str]
) -> Embeddings:
    """Embeddings by text: real ones, and for the rest of the texts estimates over bridges.

    If several sources have a text, the last one counts.
    """
    estimates: dict[str, Vectors] = {}
    for bridge, embeddings in sources:
        mappable = [text for text in embeddings if text in texts and text not in real]
        if mappable:
            vectors = bridge.map(np.stack([embeddings[text] for text in mappable]))
            estimates.update(zip(mappable, vectors, strict=True))
    return {**estimates, **real} if estimates else real


def _inputs(
    examples: Sequence[Example],
    head: Head,
    real: Embeddings,
    sources: Sequence[tuple[Bridge, Embeddings]],
) -> Inputs:
    texts = {text for example in examples for text in texts_of(example)}
    if head.task == CLASSIFICATION and sources and examples and texts.isdisjoint(real):
        bridge, embeddings = sources[-1]
        if texts <= set(embeddings):
            # All documents cross the same bridge: the old coordinates hold all there is.
            old = np.stack([embeddings[str(example)] for example in examples])
            bridge.check(old)
            ones = np.ones((len(old), 1), dtype=np.float32)
            basis = np.vstack([bridge.matrix, bridge.offset])
            return Inputs(np.hstack([old, ones]), basis, float(bridge.variance.sum()))
    embeddings = _mapped(real, sources, texts)
    complete = np.array(
        [all(text in embeddings for text in texts_of(example)) for example in examples], dtype=bool
    )
    positions = np.flatnonzero(complete)
    present = head.inputs([examples[position] for position in positions.tolist()], embeddings)
    unseen = 0.0
    if head.task == CLASSIFICATION and sources and examples:
        share = sum(str(example) not in real for example in examples) / len(examples)
        unseen = share * float(sources[-1][0].variance.sum())
    if len(present) == len(examples):
        return Inputs(present, None, unseen)
    inputs = np.zeros((len(examples), present.shape[1]), dtype=np.float32)
    if len(present):
        centre = present.mean(axis=0)
        inputs[~complete], inputs[complete] = centre, present
        unseen += float((~complete).mean()) * float(((present - centre) ** 2).sum(axis=1).mean())
    return Inputs(inputs, None, unseen)


def _missing(real: Embeddings, example: Example) -> list[str]:
    return [text for text in dict.fromkeys(texts_of(example)) if text not in real]
