"""Encode texts with a backbone, until a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from fala.backbones import Backbone
from fala.examples import Example, items_of, unique_texts
from fala.model.heads import Vectors
from fala.personal.gather import Snapshot
from fala.personal.run import Run
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Task
from fala.store.store import Store

#: Texts encoded between two checks of the clock: enough runs of the encoder for every core.
CHUNK = 256


def forward(
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], Vectors],
    run: Run,
    *,
    free: bool = False,
) -> dict[str, Vectors]:
    """Encode texts until the run's deadline, or until the app cancels.

    Args:
        texts: The texts.
        encode: Returns the embeddings of n texts, (n, d).
        run: Has the deadline; progress is reported to it, as ``"forward"``.
        free: Whether encoding costs no forward pass: then there is no deadline.

    Returns:
        The embeddings of those that were encoded.
    """
    deadline = None if free else run.deadline
    # With a deadline the first batch is small, to measure the pace. Encoding stops before a batch
    # that would exceed the deadline at the slowest pace so far.
    chunk = CHUNK if deadline is None else 8
    embeddings: dict[str, Vectors] = {}
    pace = 0.0
    done = 0
    while done < len(texts) and not run.cancelled:
        start = time.perf_counter()
        if deadline is not None:
            remaining = deadline - start
            if remaining <= 0:
                break
            if pace:
                chunk = int(min(CHUNK, remaining / pace))
                if chunk < 1:
                    break
        part = texts[done : done + chunk]
        embeddings.update(zip(part, encode(part), strict=True))
        pace = max(pace, (time.perf_counter() - start) / len(part))
        done += len(part)
        run.report("forward", done, len(texts))
    return embeddings


def encode_missing(
    store: Store, digest: str, backbone: Backbone, texts: Sequence[str]
) -> dict[str, Vectors]:
    """Encode the texts without a stored embedding of this backbone; by the store's names."""
    by_name = dict(zip(store.texts.names(texts), texts, strict=True))
    stored = store.embeddings.get(digest, list(by_name))
    missing = [name for name in by_name if name not in stored]
    if not missing:
        return {}
    return dict(zip(missing, backbone.encode([by_name[name] for name in missing]), strict=True))


def item_vectors(store: Store, slot: OpenSlot, examples: Sequence[Example]) -> dict[str, Vectors]:
    """Vectors of items, by a slot's encoder, that the store lacks; by the store's names.

    Raises:
        DataError: A vector has another length.
    """
    items = items_of(examples)
    if not items or not slot.bundle.external:
        return {}
    encoder = slot.bundle.encoder
    items = [item for item in items if item.encoder in {None, encoder}]
    for item in items:
        item.check(slot.bundle.manifest.dimension)
    by_name = dict(zip(store.texts.names(items), items, strict=True))
    stored = store.embeddings.get(slot.record.backbone, list(by_name))
    return {name: item.vector for name, item in by_name.items() if name not in stored}


def encode_free(task: Task, slot: OpenSlot, snapshot: Snapshot) -> None:
    """Encode and store all texts if that costs no forward pass, as with word vectors."""
    backbone, digest = slot.active_model.backbone, slot.record.backbone
    if backbone.is_transformer or not task.store.texts.kept:
        return
    encoded = snapshot.embeddings(digest)
    texts = unique_texts(row.stored for row in snapshot.examples())
    missing = [text for text in texts if text not in encoded]
    if not missing:
        return
    fresh = forward(missing, backbone.encode, Run(), free=True)
    task.keep_embeddings(digest, fresh)
    snapshot.add(digest, fresh)
