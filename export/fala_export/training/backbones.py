"""Define trainable backbones: a torch module, and the tokens of texts as its input."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from fala import Bundle
from fala.backbones.word_vectors import words
from fala.base.examples import tokenizer_inputs
from fala.model.heads import Vectors
from fala_export.embedding.tokens import embed_tokens, placed
from fala_export.models.encoder import Encoder
from fala_export.models.sentence_encoder import drop_pooler
from fala_export.vectors.table import bundle_table

_UNKNOWN_WORDS = ("<unk>", "unk")


class TrainableBackbone(ABC):
    """A trainable backbone, which is also a ``Backbone`` of the SDK with its current weights.

    Args:
        module: A module from token ids and mask, (n, length) each, to embeddings (n, dim).
        pad_id: A token id for the positions that the mask hides.
    """

    max_length: int | None = None  # Number of tokens of a text that are read; None reads all.

    def __init__(self, module: nn.Module, pad_id: int) -> None:
        self.module = module.eval()
        self.pad_id = pad_id

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The length of an embedding."""

    @abstractmethod
    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text."""

    @property
    def digest(self) -> str:
        """The SHA-256 digest of the weights."""
        digest = hashlib.sha256()
        for name, value in sorted(self.module.state_dict().items()):
            digest.update(name.encode())
            digest.update(value.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Embed texts, shape (n, dim)."""
        ids = self.token_ids(texts)
        return embed_tokens(self.module, ids, self.pad_id, self.dimension, half=True)

    def placed(self) -> AbstractContextManager[None]:
        """Move the module to the accelerator, where texts are encoded, and back afterwards."""
        return placed(self.module)


class TransformerLearner(TrainableBackbone):
    """A transformer with its pooling, trained in place.

    Args:
        encoder: A loaded encoder.
        max_length: Number of tokens of a text that are read.

    Attributes:
        tokenizer: The encoder's tokenizer, with truncation at ``max_length``.
    """

    def __init__(self, encoder: Encoder, max_length: int) -> None:
        drop_pooler(encoder.module.transformer)
        super().__init__(encoder.module, encoder.pad_id)
        self.encoder = encoder
        self.max_length = max_length
        self.tokenizer = Tokenizer.from_str(encoder.tokenizer.decode())
        self.tokenizer.enable_truncation(max_length)

    @property
    def dimension(self) -> int:
        """The length of an embedding."""
        return self.encoder.module.end.dimension

    def keep_tables(self) -> None:
        """Freeze the tables of tokens and positions, so that only the layers are trained."""
        for module in self.encoder.module.transformer.modules():
            if isinstance(module, nn.Embedding):
                module.requires_grad_(False)

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text, or a padding token if it has none."""
        encodings = self.tokenizer.encode_batch(tokenizer_inputs(texts))
        return [encoding.ids or [self.pad_id] for encoding in encodings]


class WordLearner(TrainableBackbone):
    """Static word vectors, of which those of some texts' words are trained.

    Args:
        bundle: A bundle of word vectors; its head, if any, is not read.
        texts: All texts that are encoded later.

    Attributes:
        manifest: The manifest of the bundle.

    Raises:
        ExportError: The bundle is of another kind.
        BundleError: The bundle's files do not fit together, or have changed.
    """

    def __init__(self, bundle: Bundle, texts: Sequence[str]) -> None:
        self.manifest = bundle.manifest
        self._words, self._vectors = bundle_table(bundle)
        index = {word: row for row, word in reversed(list(enumerate(self._words)))}
        unknown_row = next((index[word] for word in _UNKNOWN_WORDS if word in index), None)
        self._index, self._unknown_row = index, unknown_row
        self._rows = sorted({row for text in texts for row in self._table_rows(text)})
        self._positions = {row: position for position, row in enumerate(self._rows)}
        # There is at least one row, because a module without parameters cannot be trained.
        trained = self._vectors[self._rows or [0]]
        super().__init__(_MeanOfVectors(torch.from_numpy(trained)), 0)

    @property
    def dimension(self) -> int:
        """The length of an embedding."""
        return int(self._vectors.shape[1])

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the words of each text, as rows of the module's table."""
        return [[self._positions[row] for row in self._table_rows(text)] for text in texts]

    def table(self) -> tuple[list[str], Vectors]:
        """Return all words and their vectors, including the currently trained vectors."""
        vectors = self._vectors.copy()
        if self._rows:
            vectors[self._rows] = self.module.state_dict()["vectors"].numpy()
        return self._words, vectors

    def _table_rows(self, text: str) -> list[int]:
        """Return the rows of a text's words, as `fala.backbones.word_vectors` looks them up."""
        rows: list[int] = []
        for word in words(text):
            if word in self._index:
                rows.append(self._index[word])
            else:
                parts = word.split("-") if "-" in word else []
                rows.extend(self._index[part] for part in parts if part in self._index)
        if not rows and self._unknown_row is not None:
            rows.append(self._unknown_row)
        return rows


class _MeanOfVectors(nn.Module):
    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.vectors = nn.Parameter(vectors)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        weights = mask.unsqueeze(-1).to(self.vectors.dtype)
        return (self.vectors[ids] * weights).sum(1) / weights.sum(1).clamp(min=1)
