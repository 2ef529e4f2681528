"""Gather rows: a task's examples as features in one backbone's space, real or estimated."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fala.base.examples import CLASSIFICATION, Example, texts_of, unique_texts
from fala.base.products import Floats
from fala.model.bridge import Bridge, reachable
from fala.model.heads import Head, PersonalModel, Vectors
from fala.model.scales import Scales
from fala.personal.run import Run
from fala.slots.folder import Snapshot
from fala.slots.slot import Slot
from fala.solver.training import TrainingSet, blocks_of
from fala.store.embeddings import as_stored
from fala.store.examples import History, StoredExample
from fala.store.store import Store

VectorsByText = Mapping[str, Vectors]


class Reading:
    """A task's part of the store, with each table read once for one operation.

    Args:
        snapshot: The snapshot of the task, read before its examples.
        run: The operation; None for one that is neither limited nor reported.
        only: The examples, if they are already read; None reads all of them.

    Attributes:
        store: The task's part of the store.
        run: The argument.
        data: The store's count of changes of examples and labels.
        ngrams: The rows of n-grams of the store's texts.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        run: Run | None = None,
        only: list[StoredExample] | None = None,
    ) -> None:
        self.store = snapshot.task.store
        self.run = Run() if run is None else run
        self.data = snapshot.state.data
        self.ngrams = self.run.ngrams(self.store)
        self._some = only is not None
        self._examples = only
        self.history: History | None = None
        self._embeddings: dict[str, dict[str, Vectors]] = {}
        self._read: set[str] = set()  # the backbones whose stored embeddings have been read

    def at(self, data: float) -> Reading:
        """Return the examples with their labels as they were at a count of data changes.

        Args:
            data: The count; infinity takes the present labels.
        """
        earlier = copy(self)
        if self.history is None:
            self.history = self.store.examples.history()
        earlier._examples = self.history.at(data, self.examples())
        return earlier

    def examples(self) -> list[StoredExample]:
        """Return all examples."""
        if self._examples is None:
            self._examples = self.store.examples.all()
        return self._examples

    def embeddings(self, backbone: str) -> dict[str, Vectors]:
        """Return a backbone's embeddings of the examples' texts, by text."""
        embeddings = self._embeddings.setdefault(backbone, {})
        if backbone not in self._read:
            texts = [text for text in self.texts() if text not in embeddings]
            stored = self.store.embeddings.get(backbone, texts if self._some else None)
            embeddings |= {name: stored[name] for name in stored.keys() - embeddings.keys()}
            self._read.add(backbone)
        return embeddings

    def texts(self) -> list[str]:
        """Return the examples' texts, each once."""
        return unique_texts(row.stored for row in self.examples())

    def add(self, backbone: str, embeddings: VectorsByText) -> None:
        """Add embeddings before they are stored, rounded as the store does, so later fits agree."""
        self._embeddings.setdefault(backbone, {}).update(as_stored(embeddings))


@dataclass(frozen=True, eq=False)
class Space:
    """The space that rows are gathered in: that of a head, on its backbone.

    Attributes:
        head: The head.
        backbone: The digest of the head's backbone.
        bridges: The bridges that lead to the backbone, the worst first.
        scales: The release's prior scales, by number of labels; may be empty.
        differences: Personal minus vendor logits of an earlier model, (C,), by example.
    """

    head: Head
    backbone: str
    bridges: Sequence[Bridge]
    scales: tuple[Scales, ...]
    differences: Mapping[int, NDArray[np.float32]]

    @property
    def instant(self) -> bool:
        """Whether examples have rows before a forward pass, over a bridge or by their n-grams."""
        return bool(self.bridges) or self.head.lexical is not None

    @classmethod
    def of_slot(cls, store: Store, slot: Slot, earlier: Slot | None) -> Space:
        """Return a slot's space; bridges may pass through the backbone of an earlier slot."""
        bridges, release = slot.release.bridges, slot.release
        if earlier is None:
            reached = reachable(bridges, {}, "")
        else:
            reached = reachable(bridges, earlier.release.bridges, earlier.record.backbone)
        return cls(
            slot.model.head, slot.record.backbone, reached, release.bundle.scales,
            old_differences(store, slot),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class GatheredRows:
    """All examples of a task, in one backbone's space.

    Attributes:
        reading: The data of the store.
        space: The space.
        ids: Ids of the m examples with a real or estimated input, one per row of ``training``.
        training: The features and the evidence of these examples.
        missing: The texts of each such example that have no embedding, each once; empty for a real
            input.
        pending: The other examples, which have no row before their texts are encoded.
        pending_missing: The texts of each pending example that have no embedding.
    """

    reading: Reading
    space: Space
    ids: Sequence[int]
    training: TrainingSet
    missing: Sequence[Sequence[str]]
    pending: Sequence[StoredExample]
    pending_missing: Sequence[Sequence[str]]

    def logits(self, model: PersonalModel) -> Floats:
        """Return the logits of a model of the space's head, shape (n, C)."""
        weights = [model.weight[:, part] for part in model.head.parts]
        if model.lexical is not None:
            weights.append(model.lexical)
        return self.training.logits(weights, model.bias)

    def labelled(self) -> list[int]:
        """Return the ids of the labelled examples, in the order of the rows."""
        return [self.ids[position] for position in np.flatnonzero(self.training.labelled).tolist()]

    def encoded(self) -> set[int]:
        """Return the ids of the examples whose embeddings are real."""
        return {row for row, missing in zip(self.ids, self.missing, strict=True) if not missing}

    def take(self, numbers: Floats, ids: Collection[int]) -> Floats:
        """Return the rows of some examples, by id, of an array with a row per example, (n, C)."""
        positions = {row: position for position, row in enumerate(self.ids)}
        return numbers[[positions[row] for row in ids]]

    def pending_texts(self) -> list[str]:
        """Return all texts that have no embedding yet."""
        lists = (*self.missing, *self.pending_missing)
        return list(dict.fromkeys(text for texts in lists for text in texts))


def gather(reading: Reading, space: Space) -> GatheredRows:
    """Gather rows from real embeddings where there are any, and from estimated ones elsewhere.

    An example has a row if each of its texts has an embedding that is real or can be estimated.
    With an n-gram block, every example whose text is kept has a row: the mean of the other
    embeddings replaces a missing one, and only its n-grams distinguish the example.
    """
    real = reading.embeddings(space.backbone)
    sources: list[tuple[Bridge, VectorsByText]] = []
    if any(text not in real for text in reading.texts()):
        every = ((bridge, reading.embeddings(bridge.source)) for bridge in space.bridges)
        sources = [(bridge, embeddings) for bridge, embeddings in every if embeddings]
    encoded = set(real).union(*(embeddings for _, embeddings in sources))
    head = space.head
    by_ngrams = head.lexical is not None and reading.store.texts.kept()
    rows: list[StoredExample] = []
    pending: list[StoredExample] = []
    for row in reading.examples():
        complete = all(text in encoded for text in texts_of(row.stored))
        (rows if complete or by_ngrams else pending).append(row)
    examples = [row.stored for row in rows]
    # After a rollback some labels may exist only in a later release, so they are not used.
    usable = head.link.usable([row.stored_label for row in rows], head.labels)
    labels = head.label_shares(usable)
    differences = np.full(labels.shape, np.nan)
    for position, row in enumerate(rows):
        if row.id in space.differences:
            differences[position] = space.differences[row.id]
    inputs, unseen = _inputs(examples, head, real, sources)
    blocks = blocks_of(head, inputs, head.ngrams(examples, reading.ngrams), unseen)
    vendor = sum(block.times(block.weight) for block in blocks) + head.bias
    return GatheredRows(
        reading,
        space,
        [row.id for row in rows],
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
        older: The examples whose logits are a difference that a still older model has passed on.
        embeddings: The old embeddings, by text, for clustering.
        slot: The old model's slot.
    """

    logits: dict[int, NDArray[np.float32]]
    vendor: dict[int, NDArray[np.float32]]
    older: set[int]
    embeddings: VectorsByText
    slot: Slot

    def passed_on(self, head: Head) -> Mapping[int, Vectors]:
        """Return the evidence that a model on another release inherits, (C,), by example.

        It takes the place of a label where there is none, and may be empty.

        A vendor's head knows what most people think, so from the old model it takes only what is
        personal: the difference from the old vendor's logits. A head that knows nothing takes
        everything that the old model knew. Nothing in such a model goes beyond what a vendor's head
        knows by itself, so a vendor's head inherits nothing from it.

        Args:
            head: The new release's head, with the old labels in the old order.
        """
        before, now = self.slot.model.head.constant, head.constant
        if now and not before:
            return {row: z - head.bias for row, z in self.logits.items() if row not in self.older}
        if self.slot.model.is_vendor or now != before:
            return {}
        return {row: z - self.vendor[row] for row, z in self.logits.items()}


def old_logits(reading: Reading, slot: Slot) -> OldLogits:
    """Return the old logits of every example; see ``OldLogits``.

    For an example that the old backbone has not encoded, the difference of still older logits is
    passed on.
    """
    embeddings = reading.embeddings(slot.record.backbone)
    rows = [
        row
        for row in reading.examples()
        if all(text in embeddings for text in texts_of(row.stored))
    ]
    head = slot.model.head
    examples = [row.stored for row in rows]
    inputs, ngrams = head.inputs(examples, embeddings), head.ngrams(examples, reading.ngrams)
    ids = [row.id for row in rows]
    logits = dict(zip(ids, slot.model.logits(inputs, ngrams), strict=True))
    vendor = dict(zip(ids, head.vendor_model().logits(inputs, ngrams), strict=True))
    older = set[int]()
    for row, difference in old_differences(reading.store, slot).items():
        if row not in logits and difference.shape == head.bias.shape:
            logits[row], vendor[row] = difference, np.zeros_like(difference)
            older.add(row)
    return OldLogits(logits, vendor, older, embeddings, slot)


def old_differences(store: Store, slot: Slot) -> dict[int, Vectors]:
    """Return personal minus vendor logits of the old model that a slot refers to, by example."""
    if slot.record.teacher is None:
        return {}
    size = len(slot.model.bias)  # a release that added labels has a different number of logits
    logits = store.logits.get(slot.record.teacher)
    return {row: value for row, value in logits.items() if len(value) == size}


def _with_estimates(
    real: VectorsByText, sources: Sequence[tuple[Bridge, VectorsByText]], texts: set[str]
) -> VectorsByText:
    """Return embeddings by text: real ones, and estimates over bridges for the other texts.

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
    real: VectorsByText,
    sources: Sequence[tuple[Bridge, VectorsByText]],
) -> tuple[Vectors, float]:
    """Return the inputs of examples, (n, D), and the mean squared length that they lack."""
    texts = {text for example in examples for text in texts_of(example)}
    embeddings = _with_estimates(real, sources, texts)
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
        return present, unseen
    inputs = np.zeros((len(examples), present.shape[1]), dtype=np.float32)
    if len(present):
        centre = present.mean(axis=0)
        inputs[~complete], inputs[complete] = centre, present
        unseen += float((~complete).mean()) * float(((present - centre) ** 2).sum(axis=1).mean())
    return inputs, unseen


def _missing(real: VectorsByText, example: Example) -> list[str]:
    return [text for text in dict.fromkeys(texts_of(example)) if text not in real]
