"""Writers, their hard prompts, and batches of their rows for training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional

from fala import DataError
from fala.base.errors import counted
from fala.text.ngrams import lexical_rows
from fala_export import EpochPlan, Row, TextTokens, TransformerLearner, length_batches, pad
from fala_export.fit.joint_rows import sparse_array
from fala_export.fit.words import fit_idf
from studies.perplm.prompts import SOFT, PromptSettings

UNKNOWN = 0
"""The number of a writer who is not in the training."""

PLAIN = -1
"""The number for a row without a prompt."""

FEWEST_ROWS = 5
"""Writers with fewer rows count as unknown, because a prompt of their own would overfit."""

_FEWEST_WRITERS = 2


def writers_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the writers of training rows, by falling number of rows; they are numbered from 1 on.

    Raises:
        DataError: Fewer than two writers have enough rows.
    """
    counts = Counter(row.user for row in rows if row.user is not None)
    names = tuple(user for user, count in counts.most_common() if count >= FEWEST_ROWS)
    if len(names) < _FEWEST_WRITERS:
        raise DataError(
            f"the training rows have {counted(len(names), 'user')} of {FEWEST_ROWS} rows or more, "
            f"and writers' prompts need {_FEWEST_WRITERS}; give public rows that name their user"
        )
    return names


class Contexts:
    """The writers' texts, as the backbone's tokens.

    A prompt is ``[CLS] first text [SEP] second text [SEP] ...``, with the special tokens of the
    backbone's tokenizer, and without the input itself. A static prompt takes the texts in the order
    of the data. A dynamic prompt takes the texts most similar to the input first, by the cosine of
    their n-grams' tf-idf (``lexical_rows``), which costs no forward pass. The last text is
    truncated to the room that is left; the input never is.

    Args:
        learner: The backbone.
        texts: The distinct texts of each writer.
        length: Maximum number of tokens of a prompt.
        corpus: TextTokens in which n-grams are counted, for a dynamic prompt; None for a static
            one.
    """

    def __init__(
        self,
        learner: TransformerLearner,
        texts: Mapping[str, Sequence[str]],
        length: int,
        corpus: Sequence[str] | None = None,
    ) -> None:
        self._texts = {writer: list(dict.fromkeys(own)) for writer, own in texts.items()}
        self._learner, self._length = learner, length
        self._idf = None if corpus is None else fit_idf(corpus)
        self._ids: dict[str, list[int]] = {}
        self._features: dict[str, csr_array] = {}

    def tokens(self, writer: str, text: str, input_length: int) -> list[int]:
        """Return the prompt before a text.

        Args:
            writer: The writer of the texts.
            text: The input.
            input_length: Number of tokens of the input.

        Returns:
            As many tokens as there is room for besides the input; empty if no text has room.
        """
        start, end = self._special_tokens
        room = min(self._length, self._learner.encoder.longest - input_length) - len(start)
        tokens: list[int] = []
        for own_text in self._order(writer, text):
            remaining = room - len(tokens) - len(end)
            if remaining < 1:
                break
            tokens += self._own_ids(own_text)[:remaining] + end
        return start + tokens if tokens else []

    @cached_property
    def _special_tokens(self) -> tuple[list[int], list[int]]:
        """The tokenizer's tokens before and after a text."""
        tokenizer = self._learner.tokenizer
        whole, inner = (
            tokenizer.encode("a", add_special_tokens=special).ids for special in (True, False)
        )
        before = next(
            position
            for position in range(len(whole) - len(inner) + 1)
            if whole[position : position + len(inner)] == inner
        )
        return whole[:before], whole[before + len(inner) :]

    def _own_ids(self, text: str) -> list[int]:
        if text not in self._ids:
            encoded = self._learner.tokenizer.encode(text, add_special_tokens=False)
            self._ids[text] = encoded.ids
        return self._ids[text]

    def _order(self, writer: str, text: str) -> list[str]:
        texts = self._texts.get(writer, [])
        if self._idf is not None and texts:
            if writer not in self._features:
                self._features[writer] = sparse_array(lexical_rows(self._idf, texts))
            similar = self._features[writer] @ sparse_array(lexical_rows(self._idf, [text])).T
            order = np.argsort(-similar.toarray()[:, 0], kind="stable")
            texts = [texts[position] for position in order]
        return [other for other in texts if other != text]


class WriterInputs:
    """Rows as tokens and writers.

    Args:
        learner: The backbone.
        rows: n rows of classification.
        writers: The writers with a prompt; see ``writers_of``.
        contexts: Hard prompts; None for other kinds.
    """

    def __init__(
        self,
        learner: TransformerLearner,
        rows: Sequence[Row],
        writers: Sequence[str],
        contexts: Contexts | None = None,
    ) -> None:
        self._text = [str(row.example) for row in rows]
        self._texts = TextTokens(learner, list(dict.fromkeys(self._text)))
        self._index = [self._texts.position[text] for text in self._text]
        self._names, self._contexts, self._pad_id = writers, contexts, learner.pad_id
        number_of = {name: number for number, name in enumerate(writers, start=1)}
        self.numbers = [
            UNKNOWN if row.user is None else number_of.get(row.user, UNKNOWN) for row in rows
        ]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._text)

    @property
    def lengths(self) -> list[int]:
        """Number of tokens of each row's text."""
        lengths = self._texts.lengths
        return [lengths[position] for position in self._index]

    def distinct(self, numbers: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the rows that differ in text or prompt, and for every row its position among them.

        Several writers may label a text, and unknown writers share one prompt.

        Args:
            numbers: Number of the writer whose prompt is used, for each row.
        """
        first: dict[tuple[int, int], int] = {}
        rows: list[int] = []
        positions = []
        for row, key in enumerate(zip(self._index, numbers, strict=True)):
            if key not in first:
                first[key] = len(rows)
                rows.append(row)
            positions.append(first[key])
        return rows, positions

    def take(self, chosen: Sequence[int], numbers: Sequence[int]) -> dict[str, Tensor]:
        """Return the arguments of ``PromptedEncoder.forward`` for some rows.

        Args:
            chosen: Positions of the rows.
            numbers: Numbers of the writers whose prompts are used.
        """
        batch = self._texts.take([self._index[row] for row in chosen])
        batch["writers"] = torch.tensor(numbers, dtype=torch.long)
        if self._contexts is not None:
            ids = [
                self._contexts.tokens(
                    self._names[number - 1], self._text[row], len(self._texts.ids(self._index[row]))
                )
                if number > UNKNOWN
                else []
                for row, number in zip(chosen, numbers, strict=True)
            ]
            batch["context"], batch["context_mask"] = pad(ids, self._pad_id)
        return batch


class WriterBatches:
    """Rows in batches of similar length, each with its writer's prompt.

    Args:
        inputs: The rows' texts and writers.
        batch: Number of rows per batch.
        seed: Seed of their order and of the dropping.
        dropping: Rates of replacing a row's writer by the unknown one, or by no prompt; None for
            validation.
        labels: Position of each row's label, and the number of labels; None for no target.
    """

    def __init__(
        self,
        inputs: WriterInputs,
        batch: int,
        seed: int,
        dropping: PromptSettings | None,
        labels: tuple[Sequence[int], int] | None = None,
    ) -> None:
        self.inputs = inputs
        self._seed, self._labels = seed, labels
        self._dropped = self._plain = 0.0
        if dropping is not None:
            self._dropped = dropping.writer_dropout
            self._plain = dropping.plain if dropping.kind in SOFT else 0.0
        self._plan = EpochPlan(seed, partial(length_batches, self.inputs.lengths, batch))

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return len(self._plan)

    def batch(self, epoch: int, position: int) -> dict[str, Any]:
        """Return the arguments of the module's ``forward``."""
        chosen = self._plan.batch(epoch, position)
        drawn = np.random.default_rng((self._seed, epoch, position)).random(len(chosen))
        numbers = [
            PLAIN
            if share < self._plain
            else UNKNOWN
            if share < self._plain + self._dropped
            else self.inputs.numbers[row]
            for row, share in zip(chosen, drawn, strict=True)
        ]
        batch: dict[str, Any] = self.inputs.take(chosen, numbers)
        if self._labels is not None:
            labels, count = self._labels
            shares = functional.one_hot(torch.tensor([labels[row] for row in chosen]), count)
            # Two labels have one logit, that of the second label.
            batch["shares"] = shares[:, count == 2 :].to(torch.float32)
        return batch
