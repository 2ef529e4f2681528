"""The division of rows without splits: some users play devices, the others are the public.

The users with the most documents play devices, and a third of the documents of each is held out.
The same rows and seed give the same division. No other rows contain a held-out document.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fala.errors import DataError, counted
from fala.examples import document_of
from fala_export.rows.user_rows import Row

#: The most users that play devices, the fewest documents of each, and the held-out share of them.
DEVICES, FEWEST, HELD_OUT = 20, 12, 1 / 3


def divide(rows: Sequence[Row], seed: int) -> tuple[list[Row], str]:
    """Divide rows by user and document.

    Args:
        rows: Rows; their splits are ignored.
        seed: The seed of the draw of documents.

    Returns:
        The remaining rows with their splits, and a description of the division.

    Raises:
        DataError: Nobody has enough documents to play a device, or no public rows remain.
    """
    documents: dict[str, dict[str, set[object]]] = {}
    for row in rows:
        if row.user is not None and row.label is not None:
            user_documents = documents.setdefault(row.user, {})
            user_documents.setdefault(document_key(row), set()).add(row.label)
    busy = [
        user
        for user, labels in documents.items()
        if len(labels) >= FEWEST and len(set().union(*labels.values())) > 1
    ]
    most = min(DEVICES, max(1, len(documents) // 4))
    devices = sorted(busy, key=lambda user: (-len(documents[user]), user))[:most]
    if not devices:
        raise DataError(
            f"none of {counted(len(documents), 'user')} has {FEWEST} labelled documents with two "
            "labels or more, so no user can play a device; name the column of users (--user), or "
            "give one of splits (--split)"
        )
    held_out: dict[str, set[str]] = {}
    for number, user in enumerate(devices):
        texts = sorted(documents[user])
        drawn = np.random.default_rng([seed, number]).permutation(len(texts))
        held_out[user] = {texts[at] for at in drawn[: math.ceil(HELD_OUT * len(texts))]}
    all_held_out = set().union(*held_out.values())
    divided: list[Row] = []
    for row in rows:
        document, tested = document_key(row), held_out.get(row.user or "")
        if tested is not None and document in tested:
            if row.label is not None:
                divided.append(replace(row, split="test"))
        elif document not in all_held_out:
            if tested is not None:
                divided.append(replace(row, split="train"))
            elif row.label is not None:
                divided.append(replace(row, split="public"))
    if not any(row.split == "public" for row in divided):
        raise DataError(
            f"{len(devices)} of {len(documents)} users play devices, and no labelled row is left "
            "to make the release of; add other users' rows, or give a column of splits (--split)"
        )
    return divided, (
        f"no splits: {len(devices)} of {len(documents)} users play devices, with a third of their "
        f"documents held out, seed {seed}; {len(rows) - len(divided)} rows left out"
    )


def document_key(row: Row) -> str:
    """The identity of a row's document, for the division."""
    return " ".join(document_of(row.example).casefold().split())
