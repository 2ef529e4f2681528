"""What a device remembers, as rows to fit to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fala.examples import CLASSIFICATION, Example, texts_of, unique_texts
from fala.model.bridge import Bridge, reachable
from fala.model.heads import Head, Vectors
from fala.model.prior import PopulationPrior
from fala.slots.open_slot import OpenSlot
from fala.solver.training import Inputs, TrainingSet, blocks_of
from fala.store.embeddings import as_stored
from fala.store.records import StoredExample
from fala.store.store import Store
from fala.text.lexicon import CachedRows

Embeddings = Mapping[str, Vectors]


class Memory:
    """A device's store, each part read once for one piece of work.

    Args:
        store: The store.
        last: The words of an earlier memory's texts, most of which are the same.
        ids: The examples that it is about; None is about all.
        only: Those examples, where they are known already.
    """

    def __init__(
        self,
        store: Store,
        last: CachedRows | None = None,
        ids: Sequence[int] | None = None,
        only: list[StoredExample] | None = None,
    ) -> None:
        self.store = store
        self.data = store.slots.version().data
        self._ids = ids
        self.last = CachedRows(store.texts.ngrams) if last is None else last
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
        """Know embeddings that are not stored yet, as they will be: a later fit is the same."""
        self.embeddings(backbone).update(as_stored(embeddings))


@dataclass(frozen=True, eq=False)
class Target:
    """What rows are gathered for.

    Attributes:
        head: The head.
        backbone: Digest of its backbone.
        prior: How people differ from the head.
        bridges: Bridges that lead to the backbone, the worst first.
        scales: The scales of the fit's blocks that public annotators chose; None where the
            release tells none.
        differences: What was personal in older logits, (C,), by example.
    """

    head: Head
    backbone: str
    prior: PopulationPrior | None
    bridges: Sequence[Bridge]
    scales: tuple[float, ...] | None
    differences: Mapping[int, NDArray[np.float32]]

    @classmethod
    def of_slot(cls, store: Store, now: OpenSlot, earlier: OpenSlot | None) -> Target:
        """The model that answers; a bridge may lead over the backbone that answered before."""
        return cls(
            now.model.head, now.record.backbone, now.prior(), cls._bridges(now, earlier),
            now.bundle.scales, differences_of(store, now),
        )  # fmt: skip

    @classmethod
    def of_model(cls, now: OpenSlot, earlier: OpenSlot | None, scales: tuple[float, ...]) -> Target:
        """What answers, as if it were a vendor's: labels then move it from where it is."""
        head = now.model.as_head()
        return cls(head, now.record.backbone, None, cls._bridges(now, earlier), scales, {})

    @staticmethod
    def _bridges(now: OpenSlot, earlier: OpenSlot | None) -> list[Bridge]:
        if now.record.prompt:  # bridges lead to the backbone as it is
            return []
        bridges = now.bundle.bridges()
        if earlier is None:
            return reachable(bridges, {}, "")
        return reachable(bridges, earlier.bundle.bridges(), earlier.bundle.backbone_digest)


@dataclass(frozen=True, eq=False)
class Recalled:
    """All examples of a device, as one backbone knows them.

    Attributes:
        ids: Of the m examples whose inputs are known or estimated, one a row of ``training``.
        examples: The m examples.
        training: What they are fitted to.
        missing: The texts of each that the backbone has not seen, none twice; empty for an
            example whose input is real.
        waiting: The other examples, which have no row before the backbone has seen their texts.
        lacking: The texts of each of those that the backbone has not seen.
    """

    ids: Sequence[int]
    examples: Sequence[Example]
    training: TrainingSet
    missing: Sequence[Sequence[str]]
    waiting: Sequence[StoredExample]
    lacking: Sequence[Sequence[str]]

    @property
    def real(self) -> int:
        """How many examples have a real input."""
        return sum(not texts for texts in self.missing)

    def unseen(self) -> list[str]:
        """All texts that the backbone has not seen."""
        lists = (*self.missing, *self.lacking)
        return list(dict.fromkeys(text for texts in lists for text in texts))


def recall(memory: Memory, target: Target) -> Recalled:
    """Gather rows from real embeddings where there are any, else from mapped ones.

    An example has a row if each of its texts has an embedding that is real or can be mapped; with
    a lexical view every example whose words are known has one: where nothing is known of its
    embedding, the mean of the others' stands in, and its words speak alone.
    """
    real = memory.embeddings(target.backbone)
    sources = [(bridge, memory.embeddings(bridge.source)) for bridge in target.bridges]
    sources = [(bridge, embeddings) for bridge, embeddings in sources if embeddings]
    known = set(real).union(*(embeddings for _, embeddings in sources))
    head = target.head
    spoken = head.lexical is not None and memory.store.texts.ngrams_kept
    rows: list[StoredExample] = []
    waiting: list[StoredExample] = []
    for row in memory.examples():
        whole = all(text in known for text in texts_of(row.known))
        (rows if whole or spoken else waiting).append(row)
    examples = [row.known for row in rows]
    # After a rollback there may be labels that only a later release knows: they wait for it.
    known_labels = set(head.labels)
    labels = head.label_shares([row.label if row.label in known_labels else None for row in rows])
    personal = np.full(labels.shape, np.nan)
    for position, row in enumerate(rows):
        if row.id in target.differences:
            personal[position] = target.differences[row.id]
    inputs = _inputs(examples, head, real, sources)
    words = head.words(examples, memory.last)
    blocks = blocks_of(head, inputs, words, target.prior)
    vendor = sum(block.logits() for block in blocks) + head.bias
    return Recalled(
        [row.id for row in rows],
        examples,
        TrainingSet(blocks, head.bias, labels, vendor + personal),
        [_not_in(real, example) for example in examples],
        waiting,
        [_not_in(real, row.known) for row in waiting],
    )


@dataclass(frozen=True, eq=False)
class Taught:
    """What the old personal model says of the examples that its backbone has seen.

    Attributes:
        logits: Its logits, (C,), by example.
        vendor: Its vendor's own.
        embeddings: The old embeddings, by text: what clusters are made on.
    """

    logits: dict[int, NDArray[np.float32]]
    vendor: dict[int, NDArray[np.float32]]
    embeddings: Embeddings

    def differences(self) -> dict[int, NDArray[np.float32]]:
        """What is personal in the logits, by example."""
        return {row: value - self.vendor[row] for row, value in self.logits.items()}


def taught_by(memory: Memory, now: OpenSlot) -> Taught:
    """The old logits of every example; see ``Taught``.

    Of an example that the old backbone has not seen, what was personal in even older logits is
    handed on.
    """
    embeddings = memory.embeddings(now.record.backbone)
    rows = [
        row for row in memory.examples() if all(text in embeddings for text in texts_of(row.known))
    ]
    head = now.model.head
    known = [row.known for row in rows]
    inputs, words = head.inputs(known, embeddings), head.words(known, memory.last)
    ids = [row.id for row in rows]
    logits = dict(zip(ids, now.model.logits(inputs, words), strict=True))
    vendor = dict(zip(ids, head.vendor_model().logits(inputs, words), strict=True))
    for row, difference in differences_of(memory.store, now).items():
        if row not in logits and difference.shape == head.bias.shape:
            logits[row], vendor[row] = difference, np.zeros_like(difference)
    return Taught(logits, vendor, embeddings)


def differences_of(store: Store, now: OpenSlot) -> dict[int, NDArray[np.float32]]:
    """What was personal in the logits of a model's teacher, (C,), by example."""
    teacher, vendor = now.record.teacher, now.record.teacher_vendor
    if teacher is None or vendor is None:
        return {}
    plain = store.logits.get(vendor)
    size = len(now.model.bias)  # a release that added labels has other logits
    return {
        row: value - plain[row]
        for row, value in store.logits.get(teacher).items()
        if row in plain and len(value) == len(plain[row]) == size
    }


def mapped(
    real: Embeddings,
    sources: Sequence[tuple[Bridge, Embeddings]],
    texts: Iterable[str] | None = None,
) -> Embeddings:
    """Real embeddings, and estimates over bridges of those that are missing, by text.

    Args:
        real: A backbone's embeddings.
        sources: Bridges to it, with the embeddings where they start; the last that knows a text
            counts.
        texts: Those that are wanted; None for all.
    """
    wanted = None if texts is None else set(texts)
    estimates: dict[str, Vectors] = {}
    for bridge, embeddings in sources:
        here = [
            text for text in embeddings if text not in real and (wanted is None or text in wanted)
        ]
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
            # All documents cross the same bridge: the old coordinates say all there is.
            old = np.stack([embeddings[str(example)] for example in examples])
            bridge.check(old)
            ones = np.ones((len(old), 1), dtype=np.float32)
            basis = np.vstack([bridge.matrix, bridge.offset])
            return Inputs(np.hstack([old, ones]), basis, float(bridge.variance.sum()))
    embeddings = mapped(real, sources, texts)
    whole = np.array(
        [all(text in embeddings for text in texts_of(example)) for example in examples], dtype=bool
    )
    chosen = np.flatnonzero(whole)
    known = head.inputs([examples[position] for position in chosen.tolist()], embeddings)
    unseen = 0.0
    if head.task == CLASSIFICATION and sources and examples:
        share = sum(str(example) not in real for example in examples) / len(examples)
        unseen = share * float(sources[-1][0].variance.sum())
    if len(known) == len(examples):
        return Inputs(known, None, unseen)
    inputs = np.zeros((len(examples), known.shape[1]), dtype=np.float32)
    if len(known):
        centre = known.mean(axis=0)
        inputs[~whole], inputs[whole] = centre, known
        unseen += float((~whole).mean()) * float(((known - centre) ** 2).sum(axis=1).mean())
    return Inputs(inputs, None, unseen)


def _not_in(real: Embeddings, example: Example) -> list[str]:
    return [text for text in dict.fromkeys(texts_of(example)) if text not in real]
