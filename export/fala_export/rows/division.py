"""The division of rows without splits: some users play devices, the others are the public.

The users with the most documents play devices, and a third of the documents of each is held out;
where users share documents, the same ones for all, so that most rows remain.
The same rows and seed give the same division. No other rows contain a held-out document. Where
nobody has enough documents to play a device, as in a table without users, all rows are the public.
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

#: The most users that play devices unless more are asked for, the fewest documents of each, and the
#: held-out share of them.
DEVICES, FEWEST, HELD_OUT = 20, 12, 1 / 3
# The share of a user's documents that is enough, where those are held out that others share.
_ENOUGH = 1 / 4


def divide_by_user(rows: Rows, seed: int, asked: int | None = None) -> Rows:
    """Divide the rows of a file without splits, by user and document; others stay as they are.

    Args:
        rows: Rows of a file.
        seed: The seed of the draw of documents.
        asked: Number of devices that are asked for; None, or fewer, gives ``DEVICES`` at most.

    Returns:
        The remaining rows with their splits.

    Raises:
        DataError: No row has a label, or more devices are asked for than the rows allow.
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
        if held_out[own].mean() < _ENOUGH:  # documents of users before may be enough
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
    # Only a device can have documents without a label.
    unlabelled = ~on_held_out & ~is_labelled & (is_test | ~is_device)
    divided = rows.with_splits(splits).where(~on_held_out & ~unlabelled)
    if not divided.of_split("public"):
        return _undivided(rows, users_of_labels)
    description = (
        f"no splits: {len(devices)} of {users_of_labels} users play devices, with a third of their "
        f"documents held out, seed {seed}"
    )
    reasons = {"on held-out documents": on_held_out, "without a label": unlabelled}
    return _described(
        divided, description, {reason: int(each.sum()) for reason, each in reasons.items()}
    )


def _described(divided: Rows, description: str, left_out: Mapping[str, int]) -> Rows:
    """Divided rows with the description, and how many more rows are left out, by reason."""
    return replace(
        divided,
        division="; ".join(filter(None, (divided.division, description))),
        left_out={**divided.left_out, **{key: count for key, count in left_out.items() if count}},
    )


def _count(busy: int, users: int, asked: int | None) -> int:
    """How many of the users who can play devices do."""
    usual = min(DEVICES, max(1, users // 4), busy)
    allowed = max(usual, min(busy, users // 2))
    if asked is not None and asked > allowed:
        raise DataError(
            f"{counted(asked, 'simulated user')} asked for, and the rows allow {allowed}: {busy} "
            f"of {counted(users, 'user')} have {FEWEST} labelled documents with two labels or "
            f"more, and half of all stay for the release; ask for {allowed}, or add rows of more "
            "users"
        )
    return max(usual, asked or 0)


def _undivided(rows: Rows, users: int) -> Rows:
    """All labelled rows as the public, where nobody can play a device besides them."""
    public = rows.all_public()
    if not public:
        raise DataError("no row has a label; name their column with --label")
    who = "no row names a user"
    if users:
        who = (
            f"of {counted(users, 'user')} none has {FEWEST} labelled documents with two labels or "
            "more, and leaves others' rows for the release"
        )
    description = f"{who}: all rows make the release, and nobody plays a device"
    return _described(public, description, {"without a label": len(rows) - len(public)})


def _different(
    users: NDArray[np.int32], values: NDArray[np.int32], used: NDArray[np.bool_], count: int
) -> NDArray[np.int64]:
    """How many different values each user's used rows have, (count,); the last is for no user."""
    used = used & (users >= 0)
    pairs = np.unique(users[used].astype(np.int64) << 32 | values[used])
    return np.bincount(pairs >> 32, minlength=count)


def document_key(row: Row) -> str:
    """The identity of a row's document, for the division."""
    return " ".join(document_of(row.example).casefold().split())
