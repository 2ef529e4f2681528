"""What a device remembers, as rows to fit to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fala.backbones import Backbone
from fala.examples import texts_of
from fala.model.answering import Answering
from fala.model.bridge import Bridge
from fala.model.heads import Head, PersonalModel
from fala.replacement.recall import Recalled, Source, mapped, reachable, recall
from fala.replacement.representing import Knowledge
from fala.store.store import Store, StoredExample


@dataclass(frozen=True)
class Kept:
    """An earlier model that is to answer as a view.

    Attributes:
        bundle: SHA-256 of its bundle's manifest.
        backbone: Digest of its backbone.
        model: The model.
        bridges: Bridges that lead to its backbone, for what it has not seen itself.
    """

    bundle: str
    backbone: str
    model: PersonalModel
    bridges: Sequence[Bridge] = ()

    @property
    def personal(self) -> bool:
        """Whether it is more than its vendor's own model."""
        return not self.model.is_vendor


def kept_view(now: Answering) -> Kept | None:
    """The view that a slot has, also one whose weight is 0."""
    if now.view is None or now.record.view is None or now.view_bundle is None:
        return None
    bridges = reachable(now.view_bundle.bridges(), {}, "")
    return Kept(now.record.view.bundle, now.record.view.backbone, now.view.model, bridges)


class Memory:
    """A device's store, each part read once for one piece of work."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._examples: list[StoredExample] | None = None
        self._embeddings: dict[str, dict[str, NDArray[np.float32]]] = {}

    def examples(self) -> list[StoredExample]:
        """All examples."""
        if self._examples is None:
            self._examples = self.store.examples()
        return self._examples

    def embeddings(self, backbone: str) -> dict[str, NDArray[np.float32]]:
        """All embeddings that a backbone made, by text."""
        if backbone not in self._embeddings:
            self._embeddings[backbone] = self.store.embeddings(backbone)
        return self._embeddings[backbone]

    def add(self, backbone: str, embeddings: Mapping[str, NDArray[np.float32]]) -> None:
        """Know embeddings that are not stored yet."""
        self.embeddings(backbone).update(embeddings)


def encode_missing(
    store: Store, digest: str, backbone: Backbone, texts: Sequence[str]
) -> dict[str, NDArray[np.float32]]:
    """Embeddings of the texts that have none of this backbone yet."""
    stored = store.embeddings(digest)
    missing = [text for text in texts if text not in stored]
    return dict(zip(missing, backbone.encode(missing), strict=True)) if missing else {}


def knowledge_of(memory: Memory, now: Answering) -> tuple[list[int], Knowledge]:
    """What is known of every example that has an embedding of the active backbone, and its ids."""
    embeddings = memory.embeddings(now.record.backbone)
    rows = [
        row
        for row in memory.examples()
        if all(text in embeddings for text in texts_of(row.example))
    ]
    examples = [row.example for row in rows]
    head = now.model.head
    inputs = head.inputs(examples, embeddings)
    knowledge = Knowledge(
        examples=examples,
        inputs=inputs,
        logits=now.model.logits(inputs),
        vendor_logits=head.vendor_model().logits(inputs),
        labels=head.label_shares([row.label for row in rows]),
    )
    return [row.id for row in rows], knowledge


def differences_of(store: Store, now: Answering) -> dict[int, NDArray[np.float32]]:
    """What was personal in the logits of a model's teacher, (C,), by example."""
    teacher, vendor = now.record.teacher, now.record.teacher_vendor
    if teacher is None or vendor is None:
        return {}
    plain = store.logits(vendor)
    return {row: value - plain[row] for row, value in store.logits(teacher).items() if row in plain}


def recall_from(
    memory: Memory,
    head: Head,
    backbone: str,
    bridges: Sequence[Bridge],
    view: Kept | None,
    differences: Mapping[int, NDArray[np.float32]],
) -> Recalled:
    """Rows of all stored examples that a backbone has seen, or that a bridge leads to it.

    Args:
        memory: What the device remembers.
        head: The backbone's head.
        backbone: Its digest.
        bridges: Those that lead to it, the worst first.
        view: The view that is to answer beside it.
        differences: What was personal in older logits, by example; asked for where there is no
            label, unless the view is personal itself and so knows it.
    """
    stored = memory.examples()
    labels = head.label_shares([row.label for row in stored])
    personal = np.full(labels.shape, np.nan)
    if view is None or not view.personal:
        for position, row in enumerate(stored):
            if row.id in differences:
                personal[position] = differences[row.id]
    sources = [Source(bridge, memory.embeddings(bridge.source)) for bridge in bridges]
    seen = None
    if view is not None:
        behind = [Source(bridge, memory.embeddings(bridge.source)) for bridge in view.bridges]
        seen = view.model, mapped(memory.embeddings(view.backbone), behind)
    return recall(
        [row.example for row in stored],
        labels,
        head,
        memory.embeddings(backbone),
        [source for source in sources if source.embeddings],
        seen,
        personal,
    )


def recall_now(memory: Memory, now: Answering, earlier: Answering | None) -> Recalled:
    """Rows of the model that answers.

    Args:
        memory: What the device remembers.
        now: What answers.
        earlier: The slot that answered before; a bridge may lead over its backbone.
    """
    bridges = now.bundle.bridges()
    if earlier is None:
        reached = reachable(bridges, {}, "")
    else:
        reached = reachable(bridges, earlier.bundle.bridges(), earlier.record.backbone)
    return recall_from(
        memory, now.model.head, now.record.backbone, reached, kept_view(now),
        differences_of(memory.store, now),
    )  # fmt: skip
