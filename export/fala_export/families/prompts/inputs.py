"""Who has a prompt, what stands before their texts, and batches of these to train on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional

from fala import DataError
from fala.release import Lexicon, Row
from fala.release.joint_rows import sparse_array
from fala_export.families.prompts.settings import SOFT, PromptSettings
from fala_export.models.sentence_encoder import pad
from fala_export.training.backbones import TransformerLearner
from fala_export.training.texts import EpochPlan, Texts, length_batches

UNKNOWN = 0
"""The number of a writer whom the training has not seen."""

PLAIN = -1
"""The number that asks for no prompt at all."""

FEWEST_ROWS = 5
"""Rows below which a writer is an unknown one: a prompt of their own would learn rows by heart."""

_FEWEST_WRITERS = 2


@dataclass(frozen=True)
class Writers:
    """The writers of a training, numbered from 1 on; see ``UNKNOWN`` and ``PLAIN``.

    Attributes:
        names: The busiest first.
    """

    names: tuple[str, ...]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Writers:
        """Find the writers of training rows.

        Raises:
            DataError: Fewer than two have rows enough.
        """
        counts = Counter(row.user for row in rows if row.user is not None)
        names = tuple(user for user, count in counts.most_common() if count >= FEWEST_ROWS)
        if len(names) < _FEWEST_WRITERS:
            raise DataError(
                f"the training rows have {len(names)} users of {FEWEST_ROWS} rows or more, and "
                f"writers' prompts need {_FEWEST_WRITERS}; give public rows that name their user"
            )
        return cls(names)

    def numbers(self, users: Sequence[str | None]) -> list[int]:
        """The numbers of users."""
        number_of = {name: number for number, name in enumerate(self.names, start=1)}
        return [UNKNOWN if user is None else number_of.get(user, UNKNOWN) for user in users]


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
        for own_text in self._order(writer, text):
            left = room - len(tokens) - len(end)
            if left < 1:
                break
            tokens += self._own_ids(own_text)[:left] + end
        return start + tokens if tokens else []

    @cached_property
    def _marks(self) -> tuple[list[int], list[int]]:
        """What the tokenizer puts before and after a text."""
        tokenizer = self._learner.tokenizer
        whole, inner = (
            tokenizer.encode("a", add_special_tokens=framed).ids for framed in (True, False)
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
        if self._lexicon is not None and texts:
            if writer not in self._features:
                self._features[writer] = sparse_array(self._lexicon.rows(texts))
            similar = self._features[writer] @ sparse_array(self._lexicon.rows([text])).T
            order = np.argsort(-similar.toarray()[:, 0], kind="stable")
            texts = [texts[position] for position in order]
        return [one for one in texts if one != text]


class Inputs:
    """Rows as tokens and writers.

    Args:
        learner: What reads texts.
        rows: n rows of classification.
        writers: Who has a prompt.
        contexts: Hard prompts; None for another kind.
    """

    def __init__(
        self,
        learner: TransformerLearner,
        rows: Sequence[Row],
        writers: Writers,
        contexts: Contexts | None = None,
    ) -> None:
        self._text = [str(row.example) for row in rows]
        self._texts = Texts(learner, list(dict.fromkeys(self._text)))
        self._place = [self._texts.position[text] for text in self._text]
        self._names, self._contexts, self._pad_id = writers.names, contexts, learner.pad_id
        self.numbers = writers.numbers([row.user for row in rows])

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self._text)

    @property
    def lengths(self) -> list[int]:
        """Tokens of each row's text."""
        lengths = self._texts.lengths
        return [lengths[position] for position in self._place]

    def distinct(self, numbers: Sequence[int]) -> tuple[list[int], list[int]]:
        """The rows that differ in text or prompt, and for every row its place among them.

        Several writers label a text, and to a stranger they are one.

        Args:
            numbers: Whose prompts, row by row.
        """
        first: dict[tuple[int, int], int] = {}
        rows: list[int] = []
        positions = []
        for row, asked in enumerate(zip(self._place, numbers, strict=True)):
            if asked not in first:
                first[asked] = len(rows)
                rows.append(row)
            positions.append(first[asked])
        return rows, positions

    def take(self, chosen: Sequence[int], numbers: Sequence[int]) -> dict[str, Tensor]:
        """What ``PromptedEncoder.forward`` takes, of some rows.

        Args:
            chosen: The rows' positions.
            numbers: Whose prompts stand before them.
        """
        batch = self._texts.take([self._place[row] for row in chosen])
        batch["writers"] = torch.tensor(numbers, dtype=torch.long)
        if self._contexts is not None:
            ids = [
                self._contexts.tokens(
                    self._names[number - 1], self._text[row], len(self._texts.ids(self._place[row]))
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
        batch: Rows a batch.
        seed: Of their order, and of what is dropped.
        dropping: How often a row's writer is the unknown one, or has no prompt; None for never,
            to validate.
        labels: Position of each row's label, and how many labels there are; None for no target.
    """

    def __init__(
        self,
        inputs: Inputs,
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
        """Batches an epoch."""
        return len(self._plan)

    def batch(self, epoch: int, position: int) -> dict[str, Any]:
        """The arguments of the module's ``forward``."""
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
            label = torch.tensor([labels[row] for row in chosen], dtype=torch.long)
            shares = functional.one_hot(label, count).to(torch.float32)
            batch["shares"] = shares[:, 1:] if count == 2 else shares
        return batch
