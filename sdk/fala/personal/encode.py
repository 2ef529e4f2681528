"""Encode texts with a backbone, until a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from fala.base.examples import Example, items_of, unique_texts
from fala.model.heads import Vectors
from fala.personal.gather import Reading
from fala.personal.run import Run
from fala.slots.folder import Snapshot

#: Number of texts encoded between two checks of the clock, enough to give every core several runs.
CHUNK = 256
#: The same number for ``learn``: these take a second on a phone, after which they are stored.
KEPT_CHUNK = 64

Encoded = dict[str, Vectors]


def forward(
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], Vectors],
    run: Run,
    *,
    free: bool = False,
    chunk: int = CHUNK,
    keep: Callable[[Encoded], object] | None = None,
) -> Encoded:
    """Encode texts until the run's deadline, or until the app cancels.

    Args:
        texts: The texts.
        encode: A function that returns the embeddings of n texts, (n, d).
        run: The run, which has the deadline, and to which progress is reported as ``"forward"``.
        free: Whether encoding costs no forward pass, in which case there is no deadline.
        chunk: The most texts encoded in one call.
        keep: A function that is called with the embeddings of each chunk but the last.

    Returns:
        The embeddings of the texts that were encoded.
    """
    deadline = None if free else run.deadline
    # With a deadline the first batch is small, to measure the pace. Encoding stops before a batch
    # that would exceed the deadline at the slowest pace so far.
    size = chunk if deadline is None else 8
    embeddings: Encoded = {}
    pace = 0.0
    done = 0
    while done < len(texts) and not run.cancelled:
        start = time.perf_counter()
        if deadline is not None:
            remaining = deadline - start
            if remaining <= 0:
                break
            if pace:
                size = int(min(chunk, remaining / pace))
                if size < 1:
                    break
        part = texts[done : done + size]
        encoded = dict(zip(part, encode(part), strict=True))
        pace = max(pace, (time.perf_counter() - start) / len(part))
        done += len(part)
        embeddings.update(encoded)
        if keep is not None and done < len(texts):
            keep(encoded)
        run.report("forward", done, len(texts))
    return embeddings


def encode_missing(snapshot: Snapshot, examples: Sequence[Example], run: Run) -> Encoded:
    """Encode the texts without a stored embedding of the active backbone.

    The embeddings are stored as they arrive, except the last few.

    Args:
        snapshot: The snapshot of the task.
        examples: The examples with these texts.
        run: The run, which reports progress and can be cancelled.

    Returns:
        The embeddings of all texts that were encoded, by their names in the store.
    """
    task, digest = snapshot.task, snapshot.backbone
    store = task.store
    texts = unique_texts(examples)
    by_name = dict(zip(store.texts.names(texts), texts, strict=True))
    stored = store.embeddings.get(digest, list(by_name))
    backbone = snapshot.release.backbone
    return forward(
        [name for name in by_name if name not in stored],
        lambda names: backbone.encode([by_name[name] for name in names]),
        run, free=snapshot.release.static, chunk=KEPT_CHUNK,
        keep=lambda encoded: task.keep_embeddings(digest, encoded),
    )  # fmt: skip


def item_vectors(snapshot: Snapshot, examples: Sequence[Example]) -> Encoded:
    """Return the vectors of items, by the store's names, that the store lacks.

    They are vectors of the active release's encoder.
    """
    items, bundle = items_of(examples), snapshot.release.bundle
    if not items or not bundle.external:
        return {}
    items = [item for item in items if item.encoder in {None, bundle.encoder}]
    store = snapshot.task.store
    by_name = dict(zip(store.texts.names(items), items, strict=True))
    stored = store.embeddings.get(snapshot.backbone, list(by_name))
    return {name: item.vector for name, item in by_name.items() if name not in stored}


def encode_free(snapshot: Snapshot, reading: Reading) -> None:
    """Encode and store all texts if that costs no forward pass, as with word vectors."""
    if not snapshot.release.static or not reading.store.texts.kept():
        return
    encoded = reading.embeddings(snapshot.backbone)
    missing = [text for text in reading.texts() if text not in encoded]
    if missing:
        embeddings = snapshot.release.backbone.encode(missing)
        fresh = dict(zip(missing, embeddings, strict=True))
        snapshot.task.keep_embeddings(snapshot.backbone, fresh)
        reading.add(snapshot.backbone, fresh)
