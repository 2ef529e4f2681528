"""The posts of a visit: those to label, and those that no model learns from."""

from __future__ import annotations

import functools
from collections.abc import Container
from dataclasses import dataclass

from fala.playground.sample import sample_rows
from fala.release.user_rows import Rows

READERS = 8
#: The average reader is every fifth, from the third on; see ``fala.playground.sample``.
AVERAGE = range(3, READERS + 1, 5)

WANTED = 20  # labels that a visitor is asked for
DOCUMENTS = 200  # posts that the user's app has shown, all of which a reader labels
UNSEEN = 100  # posts that no model learns from
SHOWN = 12  # of them on the page


@dataclass(frozen=True)
class Posts:
    """The posts of one visit.

    Attributes:
        documents: Posts that the device keeps, to be labelled in this order.
        labels: The synthetic reader's labels of them: 1 is unwelcome.
        unseen: Posts that no model learns from. The first ``SHOWN`` are on the page.
        truth: The synthetic reader's labels of those.
    """

    documents: tuple[str, ...]
    labels: tuple[int, ...]
    unseen: tuple[str, ...]
    truth: tuple[int, ...]

    def pending(self, labelled: Container[str]) -> list[int]:
        """The positions of documents that have no label yet."""
        return [post for post, text in enumerate(self.documents) if text not in labelled]


@functools.cache
def sample(seed: int) -> Rows:
    """The built-in synthetic sample."""
    return sample_rows(users=READERS, seed=seed)


def posts_of(rows: Rows, reader: int) -> Posts:
    """The posts of a reader, counted from 1."""
    user = rows.users[f"u{reader}"]
    train, test = user.train[:DOCUMENTS], user.test[:UNSEEN]
    return Posts(
        documents=tuple(str(row.example) for row in train),
        labels=tuple(int(row.label or 0) for row in train),
        unseen=tuple(str(row.example) for row in test),
        truth=tuple(int(row.label or 0) for row in test),
    )
