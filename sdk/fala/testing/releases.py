"""Releases of the package's small models, ready to install; ``recipes`` made them."""

from __future__ import annotations

import itertools
import os
from importlib import resources
from pathlib import Path

from fala.base.errors import DataError
from fala.base.files import failure

#: The releases' labels.
LABELS = ("fine", "rude")
#: The releases' files, by name.
RELEASES = {
    "glove": "glove.fala", "glove 2": "glove-2.fala",
    "bert": "bert.fala", "bert without a bridge": "bert-without-a-bridge.fala",
}  # fmt: skip

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
    """Return 192 short English texts of two kinds, which alternate."""
    kinds = (
        [f"{start} {topic}{end}" for start, topic, end in itertools.product(each, _TOPICS, _ENDS)]
        for each in (_FRIENDLY, _RUDE)
    )
    return [text for pair in zip(*kinds, strict=True) for text in pair]


def labels_of(chosen: list[str]) -> list[str]:
    """Return the labels of a user whose taste is not the vendor's."""
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
    packaged = resources.files("fala.testing") / "releases"
    paths = {name: Path(folder, file) for name, file in RELEASES.items()}
    try:
        for path in paths.values():
            path.write_bytes((packaged / path.name).read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {failure(error)}") from error
    return paths
