"""A loaded encoder of any form: a transformer with its weights, or an exported graph."""

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

DEFAULT_LENGTH = 128  # enough for headlines, posts and comments; the cost grows with the length


@dataclass(frozen=True)
class Encoder:
    """A loaded encoder and how a text becomes its embedding.

    Attributes:
        model: The transformer with its pooling, in evaluation mode; or the graph that another tool
            exported, or that static embeddings are.
        tokenizer: The ``tokenizers`` library's tokenizer as JSON, without truncation and padding.
        pad_id: The padding token's id.
        longest: Most tokens of a text that are read: a model's number of positions, or the lower
            limit in its files; of a graph the length that it was tested with.
        usual: Tokens of a text that are read by default, where there are so many.
        revision: Its commit on the hub; None for a folder.
        prompt: What the tokenizer puts before every text; empty for nothing.
        not_kept: What the model's files say of an embedding and a bundle does not have, a sentence
            by the setting's name.
        tokens: Tokens of a trimmed vocabulary; None for a whole one.
        not_layers: Why its own pooling is taken and not three layers; empty where it was asked for.
        file: The file in its folder that was read, where the folder has graphs, too.
        table: Static embeddings as a table, which a device runs in place of the graph; None where
            there is none.
        not_static: Why static embeddings are a graph on a device.
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
        """Whether it is a transformer with its weights, which can be trained and trimmed."""
        return isinstance(self.model, SentenceEncoder)

    @property
    def module(self) -> SentenceEncoder:
        """The transformer with its pooling.

        Raises:
            ExportError: It is a graph, or a table.
        """
        if not isinstance(self.model, SentenceEncoder):
            raise ExportError("a graph or a table of vectors is no transformer that can be trained")
        return self.model

    @property
    def end(self) -> Ending:
        """What follows the states of a text's tokens."""
        return self.model.end

    @property
    def pooling(self) -> str:
        """The pooling of the states of a text's tokens; ``"none"`` where a graph pools."""
        return "mean" if self.table is not None or self.not_static else self.end.pooling

    @property
    def normalized(self) -> bool:
        """Whether embeddings have length 1."""
        return self.end.normalize

    @property
    def changed(self) -> dict[str, Any]:
        """Details of its embeddings: the pooled ``layers``, a ``prompt``, a ``cut``.

        And the number of ``tokens`` of a trimmed vocabulary.
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
        """The graph from token ids and mask to ``embedding``; see ``encoder_graph``."""
        if isinstance(self.model, ExportedGraph):
            return self.model.whole()
        return encoder_graph(self.model)

    def length(self, wanted: int | None) -> int:
        """Tokens of a text to read: ``wanted``, or the usual number of them.

        Raises:
            ExportError: It reads fewer than wanted.
        """
        if wanted is None:
            return min(self.usual, self.longest)
        if not 0 < wanted <= self.longest:
            raise ExportError(f"the model reads 1 to {self.longest} tokens of a text, not {wanted}")
        return wanted

    def token_ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """The tokens of each text; see ``token_ids``."""
        return token_ids(self.tokenizer, self.pad_id, texts, max_length)

    def encode(
        self,
        texts: Sequence[str],
        max_length: int,
        step: Callable[[int], None] = lambda _: None,
    ) -> NDArray[np.float32]:
        """Embed texts by the model itself in float32, the reference of every export.

        Args:
            texts: n texts.
            max_length: Tokens of a text that are read.
            step: Called after every batch with its number of texts.

        Returns:
            Shape (n, dim).
        """
        ids = self.token_ids(texts, max_length)
        if isinstance(self.model, ExportedGraph):
            return self.model.embed(ids, step)
        with placed(self.model):
            return embed_tokens(self.model, ids, self.pad_id, self.end.dimension, step)

    def with_tokens(self, tokenizer: bytes, old_ids: list[int]) -> Encoder:
        """A copy with some tokens alone, in the order of their new ids.

        Args:
            tokenizer: The tokenizer of these tokens.
            old_ids: Their ids in this one's.
        """
        module, pad_id = copy.deepcopy(self.module), old_ids.index(self.pad_id)
        keep_tokens(module.transformer, old_ids, pad_id)
        return replace(self, model=module, tokenizer=tokenizer, pad_id=pad_id, tokens=len(old_ids))


def trim_encoder(encoder: Encoder, texts: Iterable[str]) -> Encoder:
    """Drop the tokens that some texts do not use from the tokenizer and the embedding matrix.

    Args:
        encoder: A loaded transformer; it stays as it is.
        texts: The texts; their embeddings do not change.

    Raises:
        ExportError: See ``trim_vocabulary``.
    """
    used = used_tokens(encoder.tokenizer, texts) | {encoder.pad_id}
    return encoder.with_tokens(*trim_vocabulary(encoder.tokenizer, used))
