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
from fala.slots.open_slot import OpenSlot
from fala.solver.training import Inputs, TrainingSet, blocks_of
from fala.store.embeddings import as_stored
from fala.store.records import StoredExample
from fala.store.store import Store
from fala.text.lexicon import CachedRows

Embeddings = Mapping[str, Vectors]


class Snapshot:
    """A task's part of the store, each table read once for one operation.

    Args:
        store: The task's store.
        ngrams: Cached n-gram rows of an earlier snapshot's texts, most of which are the same.
        ids: The examples that it is about; None is about all.
        only: Those examples, where they are read already.

    Attributes:
        store: See above.
        ngrams: See above.
        data: The store's count of changes of examples and labels.
    """

    def __init__(
        self,
        store: Store,
        ngrams: CachedRows | None = None,
        ids: Sequence[int] | None = None,
        only: list[StoredExample] | None = None,
    ) -> None:
        self.store = store
        self.data = store.slots.version().data
        self.ngrams = CachedRows(store.texts.ngrams) if ngrams is None else ngrams
        self._ids = ids
        self._examples = only
        self._embeddings: dict[str, dict[str, Vectors]] = {}

    def examples(self) -> list[StoredExample]:
        """All examples."""
        if self._examples is None:
            self._examples = self.store.examples.all(self._ids)
        return self._examples

    def embeddings(self, backbone: str) -> dict[str, Vectors]:
        """All embeddings of the examples' texts that a backbone made, by text."""
        if backbone not in self._embeddings:
            texts = None
            if self._ids is not None:
                texts = unique_texts(row.known for row in self.examples())
            self._embeddings[backbone] = self.store.embeddings.get(backbone, texts)
        return self._embeddings[backbone]

    def add(self, backbone: str, embeddings: Embeddings) -> None:
        """Add embeddings that are not stored yet, as they will be: a later fit is the same."""
        self.embeddings(backbone).update(as_stored(embeddings))


@dataclass(frozen=True, eq=False)
class Space:
    """The space that rows are gathered in: a head's, on its backbone.

    Attributes:
        head: The head.
        backbone: Digest of its backbone.
        prior: How people differ from the head; None where the release brings none.
        bridges: Bridges that lead to the backbone, the worst first.
        scales: The scales of the fit's blocks that public annotators chose; None where the
            release brings none.
        differences: Personal minus vendor's logits of an earlier model, (C,), by example.
    """

    head: Head
    backbone: str
    prior: PopulationPrior | None
    bridges: Sequence[Bridge]
    scales: tuple[float, ...] | None
    differences: Mapping[int, NDArray[np.float32]]

    @classmethod
    def of_slot(cls, store: Store, slot: OpenSlot, other: OpenSlot | None) -> Space:
        """A slot's space; a bridge may lead over the backbone of the other slot."""
        return cls(
            slot.model.head, slot.record.backbone, slot.prior(), cls._bridges(slot, other),
            slot.bundle.scales, old_differences(store, slot),
        )  # fmt: skip

    @classmethod
    def of_model(cls, slot: OpenSlot, other: OpenSlot | None, scales: tuple[float, ...]) -> Space:
        """A slot's space around its personal model: labels then move the model from where it is."""
        head = slot.model.as_head()
        return cls(head, slot.record.backbone, None, cls._bridges(slot, other), scales, {})

    @staticmethod
    def _bridges(slot: OpenSlot, other: OpenSlot | None) -> list[Bridge]:
        if not slot.reads_plain:  # bridges lead to the backbone as it is
            return []
        bridges = slot.bundle.bridges()
        if other is None:
            return reachable(bridges, {}, "")
        return reachable(bridges, other.bundle.bridges(), other.bundle.backbone_digest)


@dataclass(frozen=True, eq=False)
class Rows:
    """All examples of a task, in one backbone's space.

    Attributes:
        snapshot: What was read of the store.
        space: The space.
        ids: Of the m examples whose inputs are real or estimated, one a row of ``training``.
        examples: The m examples.
        training: What they are fitted to.
        missing: The texts of each that have no embedding yet, none twice; empty for an example
            whose input is real.
        pending: The other examples, which have no row before their texts are encoded.
        pending_missing: The texts of each of those that have no embedding yet.
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
        """Of numbers with a row an example, (n, C), those of some examples, by id."""
        positions = {row: position for position, row in enumerate(self.ids)}
        return numbers[[positions[row] for row in ids]]

    def pending_texts(self) -> list[str]:
        """All texts that have no embedding yet."""
        lists = (*self.missing, *self.pending_missing)
        return list(dict.fromkeys(text for texts in lists for text in texts))


def gather(snapshot: Snapshot, space: Space) -> Rows:
    """Gather rows from real embeddings where there are any, else from mapped ones.

    An example has a row if each of its texts has an embedding that is real or can be mapped. With
    an n-gram block every example whose n-grams are kept has one: where its embedding is not known,
    the mean of the others' stands in, and its n-grams alone make the difference.
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
        whole = all(text in encoded for text in texts_of(row.known))
        (rows if whole or by_ngrams else pending).append(row)
    examples = [row.known for row in rows]
    # After a rollback there may be labels that only a later release has: they wait for it.
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
        [_missing(real, row.known) for row in pending],
    )


@dataclass(frozen=True, eq=False)
class OldLogits:
    """The old personal model's logits of the examples that its backbone has encoded.

    Attributes:
        logits: The logits, (C,), by example.
        vendor: Its vendor's own.
        embeddings: The old embeddings, by text: what clusters are made on.
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

    Of an example that the old backbone has not encoded, the difference of even older logits is
    handed on.
    """
    embeddings = snapshot.embeddings(slot.record.backbone)
    rows = [
        row
        for row in snapshot.examples()
        if all(text in embeddings for text in texts_of(row.known))
    ]
    head = slot.model.head
    examples = [row.known for row in rows]
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
    teacher, vendor = slot.record.teacher, slot.record.teacher_vendor
    if teacher is None or vendor is None:
        return {}
    plain = store.logits.get(vendor)
    size = len(slot.model.bias)  # a release that added labels has other logits
    return {
        row: value - plain[row]
        for row, value in store.logits.get(teacher).items()
        if row in plain and len(value) == len(plain[row]) == size
    }


def _mapped(
    real: Embeddings, sources: Sequence[tuple[Bridge, Embeddings]], texts: set[str]
) -> Embeddings:
    """Real embeddings, and estimates over bridges of the others of some texts, by text.

    Where several sources have a text, the last one counts.
    """
    estimates: dict[str, Vectors] = {}
    for bridge, embeddings in sources:
        here = [text for text in embeddings if text in texts and text not in real]
        if here:
            vectors = bridge.map(np.stack([embeddings[text] for text in here]))
            estimates.update(zip(here, vectors, strict=True))
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
    whole = np.array(
        [all(text in embeddings for text in texts_of(example)) for example in examples], dtype=bool
    )
    chosen = np.flatnonzero(whole)
    present = head.inputs([examples[position] for position in chosen.tolist()], embeddings)
    unseen = 0.0
    if head.task == CLASSIFICATION and sources and examples:
        share = sum(str(example) not in real for example in examples) / len(examples)
        unseen = share * float(sources[-1][0].variance.sum())
    if len(present) == len(examples):
        return Inputs(present, None, unseen)
    inputs = np.zeros((len(examples), present.shape[1]), dtype=np.float32)
    if len(present):
        centre = present.mean(axis=0)
        inputs[~whole], inputs[whole] = centre, present
        unseen += float((~whole).mean()) * float(((present - centre) ** 2).sum(axis=1).mean())
    return Inputs(inputs, None, unseen)


def _missing(real: Embeddings, example: Example) -> list[str]:
    return [text for text in dict.fromkeys(texts_of(example)) if text not in real]
