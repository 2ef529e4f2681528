"""Define ``fala-export word-vectors``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fala_export.bundle.admit import write_admitted
from fala_export.cli.command import Summary, command
from fala_export.recipe.options import File, PositionalArgument, Share
from fala_export.recipe.settings import VectorOptions
from fala_export.vectors.word_vectors import MAX_DAMAGED, export_word_vectors


@dataclass(frozen=True, kw_only=True)
class WordVectorsCommand:
    """A file of vectors, and the vectors to keep.

    Attributes:
        source: Text file of vectors.
        out: Bundle to write.
        max_damaged: Share of damaged lines above which nothing is written.
        name: Name in the manifest (default: the source's name).
    """

    source: Annotated[File, PositionalArgument("SOURCE")]
    out: File
    vectors: VectorOptions
    max_damaged: Share = MAX_DAMAGED
    name: str | None = None


@command(WordVectorsCommand)
def word_vectors(settings: WordVectorsCommand) -> Summary:
    """Export static word vectors: a text file of GloVe, word2vec or fastText.

    The file may be a .gz or a .zip, and may begin with word2vec's header line. Export vectors of
    lower-case words, because a device converts texts to lower case and never finds other words.
    """
    return write_admitted(
        settings.out,
        lambda out: export_word_vectors(
            settings.source,
            out,
            settings.vectors,
            max_damaged=settings.max_damaged,
            name=settings.name,
        ),
    )
