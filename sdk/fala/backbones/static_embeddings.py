"""Static embeddings, which embed a text as the mean of its tokens' vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.audit import limits
from fala.backbones.word_vectors import LONGEST, MeanOfVectors
from fala.backbones.wordpiece import WordPiece
from fala.base.errors import BundleFormatError
from fala.base.examples import PARTING

_SETTINGS = {"tokenizer", "prompt", "normalized", "skips_unknown", "characters"}
_SHORTEST = 1e-12  # length of an embedding that is scaled to 1: torch's own


class StaticEmbeddings(MeanOfVectors):
    """Mean of tokens' vectors, as sentence-transformers (StaticEmbedding) and model2vec compute it.

    A text without tokens gets the zero vector. The segments of a pair are read as one text.

    Args:
        vocabulary: The token of each row; see ``WordPiece``.
        settings: ``tokenizer``, the settings of a ``WordPiece``; ``prompt``, a text before every
            text; ``normalized``, whether embeddings are scaled to length 1; ``skips_unknown``,
            whether unknown words have no part in the mean; ``characters``, how many of a text are
            read, or null for ``LONGEST``.
        vectors: The tokens' vectors, or codes of them, shape (V, d).
        scales: The steps of the codes, shape (V,).
        max_length: The number of tokens of a text that are read; None for all.

    Raises:
        BundleFormatError: The settings are not of this form, or do not fit the vocabulary, or the
            vectors do not.
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        settings: object,
        vectors: NDArray[Any],
        scales: NDArray[Any] | None = None,
        *,
        max_length: int | None = None,
    ) -> None:
        super().__init__(len(vocabulary), vectors, scales)
        if not isinstance(settings, dict) or set(settings) != _SETTINGS:
            raise BundleFormatError(
                f"static embeddings have the settings {', '.join(sorted(_SETTINGS))}, and no others"
            )
        prompt, characters = settings["prompt"], settings["characters"]
        if not isinstance(prompt, str) or len(prompt) > limits.PROMPT:
            raise BundleFormatError(
                f"a prompt must be a text of at most {limits.PROMPT} characters"
            )
        if characters is not None and (type(characters) is not int or characters < 1):
            raise BundleFormatError("characters must be null or a whole number of 1 or more")
        flags = settings["normalized"], settings["skips_unknown"]
        if not all(isinstance(flag, bool) for flag in flags):
            raise BundleFormatError("normalized and skips_unknown must be true or false")
        self._normalized, self._skips_unknown = flags
        self._prompt, self._longest = prompt, min(characters or LONGEST, LONGEST)
        self._max_length = max_length
        self._tokenizer = WordPiece(vocabulary, settings["tokenizer"])

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; only ``characters`` of a text count. See ``Backbone``."""
        try:
            result = super().encode(texts)
        finally:
            self._tokenizer.drop_words()
        if self._normalized:
            result /= np.maximum(np.linalg.norm(result, axis=1, keepdims=True), _SHORTEST)
        return result

    def _rows(self, text: str) -> list[int]:
        read = f"{self._prompt}{text[: self._longest].replace(PARTING, ' ')}"
        ids = self._tokenizer.ids(read)[: self._max_length]
        if not self._skips_unknown:
            return ids
        return [id for id in ids if id != self._tokenizer.unknown]
