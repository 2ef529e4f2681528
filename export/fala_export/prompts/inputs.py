"""Rows of writers as a prompted backbone's input, and batches of them to train on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fala.release import Row
from fala_export.prompts.contexts import Contexts
from fala_export.prompts.settings import SOFT, PromptSettings
from fala_export.prompts.writers import PLAIN, UNKNOWN, Writers
from fala_export.training.learners import TransformerLearner, pad
from fala_export.training.texts import EpochPlan, Texts


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
        return [lengths[place] for place in self._place]

    def distinct(self, numbers: Sequence[int]) -> tuple[list[int], list[int]]:
        """The rows that differ in text or prompt, and for every row its place among them.

        Several writers label a text, and to a stranger they are one.

        Args:
            numbers: Whose prompts, row by row.
        """
        first: dict[tuple[int, int], int] = {}
        rows: list[int] = []
        places = []
        for row, asked in enumerate(zip(self._place, numbers, strict=True)):
            if asked not in first:
                first[asked] = len(rows)
                rows.append(row)
            places.append(first[asked])
        return rows, places

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
        self._plan = EpochPlan(self.inputs.lengths, batch, seed)

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
