"""Hard prompts: a writer's own texts as tokens before the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from fala.release import Lexicon
from fala.release.joint_rows import sparse_array
from fala_export.training.learners import TransformerLearner


class Contexts:
    """The writers' texts, as the backbone's tokens.

    ``[CLS] first text [SEP] second text [SEP] ...``, in the marks of the backbone's tokenizer. The
    input itself is never among them. A static prompt takes the texts in the order of the data. A
    dynamic one takes the most similar to the input first, by the cosine of their n-grams' tf-idf
    (``fala.release.Lexicon``): it costs no forward pass, and is the same on every device. The last
    text that has room is cut; the input never is. On a device ``OnnxEncoder.context`` gives the
    same tokens, of which it makes keys and values.

    Args:
        learner: What reads texts.
        texts: The distinct texts of each writer.
        length: Tokens of a prompt, at most.
        known: Texts that frequencies of n-grams are of, where the most similar come first; None
            keeps the order.
    """

    def __init__(
        self,
        learner: TransformerLearner,
        texts: Mapping[str, Sequence[str]],
        length: int,
        known: Sequence[str] | None = None,
    ) -> None:
        self._texts = {writer: list(dict.fromkeys(own)) for writer, own in texts.items()}
        self._learner, self._length = learner, length
        self._lexicon = None if known is None else Lexicon.fit(known)
        self._ids: dict[str, list[int]] = {}
        self._features: dict[str, csr_array] = {}

    def tokens(self, writer: str, text: str, taken: int) -> list[int]:
        """The prompt before a text.

        Args:
            writer: Whose texts.
            text: The input.
            taken: Its tokens.

        Returns:
            As many as there is room for beside the input; none, where no text has room.
        """
        start, end = self._marks
        room = min(self._length, self._learner.encoder.longest - taken) - len(start)
        tokens: list[int] = []
        for own in self._order(writer, text):
            left = room - len(tokens) - len(end)
            if left < 1:
                break
            tokens += self._own_ids(own)[:left] + end
        return start + tokens if tokens else []

    @cached_property
    def _marks(self) -> tuple[list[int], list[int]]:
        """What the tokenizer puts before and after a text."""
        tokenizer = self._learner.tokenizer
        whole, inner = (
            tokenizer.encode("a", add_special_tokens=framed).ids for framed in (True, False)
        )
        before = next(
            place
            for place in range(len(whole) - len(inner) + 1)
            if whole[place : place + len(inner)] == inner
        )
        return whole[:before], whole[before + len(inner) :]

    def _own_ids(self, text: str) -> list[int]:
        if text not in self._ids:
            encoded = self._learner.tokenizer.encode(text, add_special_tokens=False)
            self._ids[text] = encoded.ids
        return self._ids[text]

    def _order(self, writer: str, text: str) -> list[str]:
        texts = self._texts.get(writer, [])
        if self._lexicon is not None and texts:
            if writer not in self._features:
                self._features[writer] = sparse_array(self._lexicon.rows(texts))
            similar = self._features[writer] @ sparse_array(self._lexicon.rows([text])).T
            order = np.argsort(-similar.toarray()[:, 0], kind="stable")
            texts = [texts[place] for place in order]
        return [own for own in texts if own != text]
