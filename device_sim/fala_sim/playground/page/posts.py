"""The posts of a visit: posts to label, and unseen posts.

All posts were written for this page, on five topics in six tones (``posts.json``). An invented
reader is a list of tags, or of pairs of tags, that make a post unwelcome.
"""

from __future__ import annotations

import json
import random
from collections.abc import Container
from dataclasses import dataclass
from importlib import resources

_FILE = json.loads((resources.files(__package__) / "posts.json").read_text("utf-8"))

#: A description of each reader's unwelcome posts. Readers are numbered from 1.
TASTES: tuple[str, ...] = tuple(reader["taste"] for reader in _FILE["readers"])

WANTED = 20  # number of labels requested from a user
UNSEEN = 100  # number of posts that no model learns from
SHOWN = 12  # number of unseen posts on the page
PASSES = 60  # number of posts that the new backbone encodes for one press of the button


@dataclass(frozen=True)
class Posts:
    """The posts of one visit.

    Attributes:
        documents: Posts on the device, to be labelled in this order.
        labels: The invented reader's labels of ``documents``: 1 is unwelcome.
        unseen: Posts that no model learns from. The first ``SHOWN`` are on the page.
        truth: The invented reader's labels of ``unseen``.
    """

    documents: tuple[str, ...]
    labels: tuple[int, ...]
    unseen: tuple[str, ...]
    truth: tuple[int, ...]

    def pending(self, labelled: Container[str]) -> list[int]:
        """Return the positions of documents without a label."""
        return [post for post, text in enumerate(self.documents) if text not in labelled]


def posts_of(seed: int, reader: int) -> Posts:
    """Return the posts of a reader, in an order given by the seed."""
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
