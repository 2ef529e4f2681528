"""Represent a loaded encoder of any form: a transformer with its weights, or an exported graph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from fala_export.base.errors import ExportError
from fala_export.embedding.tokens import embed_tokens, placed
from fala_export.models.exported_graph import ExportedGraph
from fala_export.models.onnx_graph import encoder_graph, weight_bytes
from fala_export.models.sentence_encoder import Ending, SentenceEncoder
from fala_export.models.static_table import StaticTable
from fala_export.models.tokenizer import token_ids
from fala_export.models.vocabulary import keep_tokens, trim_vocabulary, used_tokens

DEFAULT_LENGTH = 128  # Enough for headlines, posts and comments; the cost grows with the length.


@dataclass(frozen=True)
class Encoder:
    """A loaded encoder, which turns a text into its embedding.

    Attributes:
        model: The transformer with its pooling, in evaluation mode; or a graph, exported by another
            tool or made from static embeddings.
        tokenizer: The ``tokenizers`` library's tokenizer as JSON, without truncation and padding.
        pad_id: The padding token's id.
        longest: Most tokens of a text that are read: a model's number of positions, or the lower
            limit in its files; for a graph, the length that it was tested with.
        usual: Number of tokens of a text that are read by default, if the text has so many.
        revision: Commit of the model on the hub; None for a folder.
        prompt: Text that the tokenizer puts before every text; may be empty.
        not_kept: Settings of the model's files that a bundle does not store: a sentence for each
            setting's name.
        tokens: Number of tokens of a trimmed vocabulary; None for a whole vocabulary.
        not_layers: Why the model's own pooling is used instead of three layers; empty if it was
            requested.
        file: The file that was read, if the folder also contains graphs.
        table: Static embeddings as a table, which a device runs instead of the graph; None if there
            is no such table.
        not_static: Why a device runs static embeddings as a graph.
    """

    model: SentenceEncoder | ExportedGraph
    tokenizer: bytes
    pad_id: int
    longest: int
    usual: int = DEFAULT_LENGTH
    revision: str | None = None
    prompt: str = ""
    not_kept: Mapping[str, str] = field(default_factory=dict)
    tokens: int | None = None
    not_layers: str = ""
    file: str | None = None
    table: StaticTable | None = None
    not_static: str = ""

    @property
    def trainable(self) -> bool:
        """Whether this is a transformer with its weights, which can be trained and trimmed."""
        return isinstance(self.model, SentenceEncoder)

    @property
    def module(self) -> SentenceEncoder:
        """The transformer with its pooling.

        Raises:
            ExportError: The encoder is a graph or a table.
        """
        if not isinstance(self.model, SentenceEncoder):
            raise ExportError(
                "only a transformer can be trained, not a graph or a table of vectors"
            )
        return self.model

    @property
    def end(self) -> Ending:
        """What follows the states of a text's tokens."""
        return self.model.end

    @property
    def pooling(self) -> str:
        """The pooling of the states of a text's tokens; ``"none"`` if a graph pools them."""
        return "mean" if self.table is not None or self.not_static else self.end.pooling

    @property
    def normalized(self) -> bool:
        """Whether embeddings have length 1."""
        return self.end.normalize

    @property
    def changed(self) -> dict[str, Any]:
        """Details that change the embeddings: the pooled ``layers``, a ``prompt``, a ``cut``.

        The number of ``tokens`` of a trimmed vocabulary is included.

        """
        details: dict[str, Any] = {"layers": self.module.layers} if self.trainable else {}
        found = {"prompt": self.prompt or None, "cut": self.end.cut, "tokens": self.tokens}
        return details | {name: value for name, value in found.items() if value is not None}

    @property
    def size(self) -> int:
        """Size of the weights in float32, or of the graph, in bytes."""
        model = self.model
        return model.size if isinstance(model, ExportedGraph) else weight_bytes(model)

    def graph(self) -> ModelProto:
        """Return the graph from token ids and mask to ``embedding``; see ``encoder_graph``."""
        if isinstance(self.model, ExportedGraph):
            return self.model.whole()
        return encoder_graph(self.model)

    def length(self, wanted: int | None) -> int:
        """Return the number of tokens of a text to read: ``wanted``, or the usual number.

        Raises:
            ExportError: The encoder reads fewer tokens than wanted.
        """
        return checked_length(wanted, min(self.usual, self.longest), self.longest)

    def token_ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Return the tokens of each text; see ``token_ids``."""
        return token_ids(self.tokenizer, self.pad_id, texts, max_length)

    def encode(
        self,
        texts: Sequence[str],
        max_length: int,
        step: Callable[[int], None] = lambda _: None,
    ) -> NDArray[np.float32]:
        """Embed texts with the model itself in float32, as the reference for every export.

        Args:
            texts: The texts, n of them.
            max_length: Number of tokens of a text that are read.
            step: A function called after every batch with its number of texts.

        Returns:
            The embeddings, shape (n, dim).
        """
        ids = self.token_ids(texts, max_length)
        if isinstance(self.model, ExportedGraph):
            return self.model.embed(ids, step)
        with placed(self.model):
            return embed_tokens(self.model, ids, self.pad_id, self.end.dimension, step)

    def with_tokens(self, tokenizer: bytes, old_ids: list[int]) -> Encoder:
        """Return a copy with only some tokens, in the order of their new ids.

        Args:
            tokenizer: The tokenizer with only these tokens.
            old_ids: Their ids in this encoder's tokenizer.
        """
        module, pad_id = copy.deepcopy(self.module), old_ids.index(self.pad_id)
        keep_tokens(module.transformer, old_ids, pad_id)
        return replace(self, model=module, tokenizer=tokenizer, pad_id=pad_id, tokens=len(old_ids))


def checked_length(wanted: int | None, usual: int, most: int) -> int:
    """Return the number of tokens of a text to read: ``wanted``, or if None, the usual number.

    Raises:
        ExportError: The number is not from 1 to the most tokens that the model reads.
    """
    length = usual if wanted is None else wanted
    if not 0 < length <= most:
        raise ExportError(
            f"the model reads 1 to {most} tokens of a text, not {length}; set --max-length"
        )
    return length


def trim_encoder(encoder: Encoder, texts: Iterable[str]) -> Encoder:
    """Drop the tokens that no text uses from the tokenizer and the embedding matrix.

    Args:
        encoder: A loaded transformer; it is not changed.
        texts: The texts, whose embeddings do not change.

    Raises:
        ExportError: The vocabulary cannot be trimmed; see ``trim_vocabulary``.
    """
    used = used_tokens(encoder.tokenizer, texts) | {encoder.pad_id}
    return encoder.with_tokens(*trim_vocabulary(encoder.tokenizer, used))
