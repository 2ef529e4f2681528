"""The posts of a visit: those to label, and those that no model learns from.

All posts were written for this page, on five topics in six tones (``posts.json``). A reader is
invented: a list of tags, or of pairs of them, that make a post unwelcome.
"""

from __future__ import annotations

import json
import random
from collections.abc import Container
from dataclasses import dataclass
from importlib import resources

_FILE = json.loads((resources.files(__package__) / "posts.json").read_text("utf-8"))

#: What each reader finds unwelcome, in one line. Readers are counted from 1.
TASTES: tuple[str, ...] = tuple(reader["taste"] for reader in _FILE["readers"])

WANTED = 20  # labels that a visitor is asked for
UNSEEN = 100  # posts that no model learns from
SHOWN = 12  # of them on the page
PASSES = 60  # posts that the new backbone reads at one press


@dataclass(frozen=True)
class Posts:
    """The posts of one visit.

    Attributes:
        documents: Posts that the device keeps, to be labelled in this order.
        labels: The invented reader's labels of them: 1 is unwelcome.
        unseen: Posts that no model learns from. The first ``SHOWN`` are on the page.
        truth: The invented reader's labels of those.
    """

    documents: tuple[str, ...]
    labels: tuple[int, ...]
    unseen: tuple[str, ...]
    truth: tuple[int, ...]

    def pending(self, labelled: Container[str]) -> list[int]:
        """The positions of documents that have no label yet."""
        return [post for post, text in enumerate(self.documents) if text not in labelled]


def posts_of(seed: int, reader: int) -> Posts:
    """The posts of a reader, in an order that the seed decides."""
    unwelcome = [set(tags) for tags in _FILE["readers"][reader - 1]["unwelcome"]]
    posts = [
        (text, int(any(tags <= {topic, tone} for tags in unwelcome)))
        for topic, tones in _FILE["posts"].items()
        for tone, texts in tones.items()
        for text in texts
    ]
    random.Random(seed).shuffle(posts)
    texts, labels = zip(*posts, strict=True)
    return Posts(texts[UNSEEN:], labels[UNSEEN:], texts[:UNSEEN], labels[:UNSEEN])
