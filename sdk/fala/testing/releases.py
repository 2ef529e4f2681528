"""Releases of the package's models, ready to install."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import fala
from fala.playground.releases import BUILT_IN, built_in

#: The releases' labels.
LABELS = ("fine", "rude")

_FRIENDLY = ("What a lovely film", "Thank you for this", "I enjoyed the book", "A kind answer")
_RUDE = ("What a stupid film", "Nobody wants you here", "The book is garbage", "A vile answer")
_TOPICS = (
    "from the library", "about the match", "on Monday", "by my neighbour", "in the news",
    "at the station",
)  # fmt: skip
_ENDS = (".", ", they say.", ", once again.", ", as we all know.")
#: Words of texts that this user finds rude, and the vendor does not.
_RUDE_TO_USER = ("neighbour", "match", "once again")


def texts() -> list[str]:
    """192 short English texts of two kinds, which alternate."""
    kinds = (
        [f"{start} {topic}{end}" for start, topic, end in itertools.product(each, _TOPICS, _ENDS)]
        for each in (_FRIENDLY, _RUDE)
    )
    return [text for pair in zip(*kinds, strict=True) for text in pair]


def labels_of(chosen: list[str]) -> list[str]:
    """The labels of a user whose taste is not the vendor's."""
    return [LABELS[any(word in text for word in _RUDE_TO_USER)] for text in chosen]


def write_releases(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """Write releases of real small models: word vectors, and a transformer of three layers.

    Args:
        folder: The folder of the files.

    Returns:
        Files by name: ``"glove"``, word vectors; ``"bert"``, the transformer with a bridge from
        the vectors; ``"bert without a bridge"``, the same without; ``"glove 2"``, the word vectors
        with another head.

    Raises:
        DataError: A file cannot be written.
    """
    public = texts()
    labels = [LABELS[number % 2] for number in range(len(public))]
    bundles = {name: built_in(name) for name in BUILT_IN}
    paths: dict[str, Path] = {}
    for name, source, rows in (
        ("glove", "glove", slice(0, 96)), ("glove 2", "glove", slice(96, None)),
        ("bert without a bridge", "bert", slice(0, 96)), ("bert", "bert", slice(0, 96)),
    ):  # fmt: skip
        paths[name] = Path(folder, f"{name.replace(' ', '-')}.fala")
        head = fala.fit_head(bundles[source].backbone(), public[rows], labels[rows])
        fala.write_release(paths[name], bundles[source], head, {})
    old, new = (bundles[name].backbone().encode(public) for name in ("glove", "bert"))
    bridge = fala.fit_bridge(bundles["glove"].backbone_digest, old, new)
    fala.add_bridge(paths["bert"], fala.Bundle.open(paths["bert"]), bridge, {})
    return paths
