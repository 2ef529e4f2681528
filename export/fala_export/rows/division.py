"""Divide rows without splits: some users become simulated users, the others are the public.

The users with the most documents are simulated, and a third of each one's documents is held out. If
users share documents, the same ones are held out for all, so that most rows remain. No other row
contains a held-out document. The same rows and seed give the same division. If nobody has enough
documents to be simulated, as in a table without users, all rows are public.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import DataError, counted
from fala.base.examples import document_of
from fala_export.rows.table import Rows, coded, split_number
from fala_export.rows.user_rows import Row

#: Default number of simulated users, fewest documents of each, and the held-out share of those
#: documents.
DEVICES, FEWEST, HELD_OUT = 20, 12, 1 / 3
# Share of a user's documents that suffices if held-out documents are shared with other users.
_ENOUGH = 1 / 4


def divide_by_user(rows: Rows, seed: int, asked: int | None = None) -> Rows:
    """Divide the rows of a file without splits by user and document; return other rows unchanged.

    Args:
        rows: Rows of a file.
        seed: The seed with which documents are drawn.
        asked: Requested number of simulated users; if None, there are at most ``DEVICES``.

    Returns:
        The remaining rows with their splits.

    Raises:
        DataError: No row has a label, or more simulated users are requested than the rows allow.
    """
    if rows.has_splits:
        return rows
    names, users = rows.names, rows.user_codes
    texts, keys = coded(map(document_key, rows))
    is_labelled = rows.label_codes >= 0
    counts = _different(users, keys, is_labelled, len(names))
    labels = _different(users, rows.label_codes, is_labelled, len(names))
    users_of_labels = int((counts > 0).sum())
    busy = np.flatnonzero((counts >= FEWEST) & (labels > 1)).tolist()
    devices = sorted(busy, key=lambda user: (-counts[user], str(names[user])))
    devices = devices[: _count(len(busy), users_of_labels, asked)]
    if not devices or not (is_labelled & ~np.isin(users, devices)).any():
        return _undivided(rows, users_of_labels)
    held_out = np.zeros(int(keys.max()) + 1, dtype=np.bool_)
    for number, user in enumerate(devices):
        judged = np.unique(keys[(users == user) & is_labelled]).tolist()
        own = np.array(sorted(judged, key=lambda key: str(texts[key])))
        if held_out[own].mean() < _ENOUGH:  # Documents held out for earlier users may be enough.
            free = own[~held_out[own]]
            missing = math.ceil(HELD_OUT * len(own)) - (len(own) - len(free))
            drawn = np.random.default_rng([seed, number]).permutation(len(free))
            held_out[free[drawn[:missing]]] = True
    is_held_out = held_out[keys]
    trained = set(users[is_labelled & ~is_held_out].tolist())
    devices = [user for user in devices if user in trained]
    is_device = np.isin(users, devices)
    is_test = is_device & is_held_out
    splits = np.full(len(rows), split_number("public"), dtype=np.int8)
    splits[is_device] = split_number("train")
    splits[is_test] = split_number("test")
    on_held_out = is_held_out & ~is_device
    # Only a simulated user may have documents without a label.
    unlabelled = ~on_held_out & ~is_labelled & (is_test | ~is_device)
    divided = rows.with_splits(splits).where(~on_held_out & ~unlabelled)
    if not divided.of_split("public"):
        return _undivided(rows, users_of_labels)
    description = (
        f"no splits: {len(devices)} of {users_of_labels} users are simulated, with a third of "
        f"their documents held out, seed {seed}"
    )
    reasons = {"on held-out documents": on_held_out, "without a label": unlabelled}
    return _described(
        divided, description, {reason: int(each.sum()) for reason, each in reasons.items()}
    )


def _described(divided: Rows, description: str, left_out: Mapping[str, int]) -> Rows:
    """Return the divided rows with a description and further counts of left-out rows."""
    return replace(
        divided,
        division="; ".join(filter(None, (divided.division, description))),
        left_out={**divided.left_out, **{key: count for key, count in left_out.items() if count}},
    )


def _count(busy: int, users: int, asked: int | None) -> int:
    """Return how many of the users who can be simulated are."""
    usual = min(DEVICES, max(1, users // 4), busy)
    allowed = max(usual, min(busy, users // 2))
    if asked is not None and asked > allowed:
        raise DataError(
            f"{counted(asked, 'simulated user')} requested, but the rows allow {allowed}: {busy} "
            f"of {counted(users, 'user')} have at least {FEWEST} labelled documents with two "
            f"labels or more, and half of all users stay for the release; request {allowed}, or "
            "add rows of more users"
        )
    return max(usual, asked or 0)


def _undivided(rows: Rows, users: int) -> Rows:
    """Return all labelled rows as public rows, if nobody can be simulated."""
    public = rows.all_public()
    if not public:
        raise DataError("no row has a label; name their column with --label")
    who = "no row names a user"
    if users:
        who = (
            f"none of {counted(users, 'user')} has {FEWEST} labelled documents and leaves enough "
            "of other users' rows for the release"
        )
    description = f"{who}: all rows are used for the release, and nobody is simulated"
    return _described(public, description, {"without a label": len(rows) - len(public)})


def _different(
    users: NDArray[np.int32], values: NDArray[np.int32], used: NDArray[np.bool_], count: int
) -> NDArray[np.int64]:
    """Count the different values among each user's used rows, (count,); the last is for no user."""
    used = used & (users >= 0)
    pairs = np.unique(users[used].astype(np.int64) << 32 | values[used])
    return np.bincount(pairs >> 32, minlength=count)


def document_key(row: Row) -> str:
    """Return the identity of a row's document, for the division."""
    return " ".join(document_of(row.example).casefold().split())
