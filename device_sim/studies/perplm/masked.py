"""Personalized intermediate learning: predict masked words of the texts, after writers' prompts.

It is the stage before the task. As in BERT, 15 % of the tokens are predicted, of which 80 % are
masked, 10 % are random tokens and 10 % stay. The predicting head is new, because sentence encoders
have none, and it is dropped afterwards. It is a layer over the token's state, with the backbone's
table of words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fala_export import ExportError, TransformerLearner
from studies.perplm.inputs import WriterBatches
from studies.perplm.model import PromptedEncoder

_SHARE, _MASKED, _OTHER = 0.15, 0.8, 0.9
_NAMES = ("[MASK]", "<mask>")
_NONE = -100  # ignore_index of cross_entropy: a token that is not predicted


class MaskedModule(nn.Module):
    """A prompted backbone that predicts words.

    Args:
        prompted: The backbone with its prompts, trained in place.
        seed: Seed of the predicting layer.
    """

    def __init__(self, prompted: PromptedEncoder, seed: int) -> None:
        super().__init__()
        self.prompted = prompted
        width = self._words.shape[1]
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.layer = nn.Linear(prompted.encoder.end.dimension, width)
        self.norm = nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(len(self._words)))

    @property
    def _words(self) -> Tensor:
        table: Tensor = self.prompted.encoder.transformer.get_input_embeddings().weight
        return table

    def forward(self, hidden: Tensor, **inputs: Tensor) -> dict[str, Tensor]:
        """Return the loss over masked tokens.

        Args:
            hidden: The true token if it is to be predicted, else -100; shape (n, length).
            inputs: Arguments of ``PromptedEncoder.states``.
        """
        chosen = hidden != _NONE
        states = self.norm(functional.gelu(self.layer(self.prompted.states(**inputs)[chosen])))
        scores = states @ self._words.T + self.bias
        loss = functional.cross_entropy(scores.float(), hidden[chosen])
        return {"loss": loss, "weight": chosen.sum()}


class MaskedBatches:
    """Writers' texts with words to predict, with other words in every epoch.

    Args:
        learner: The backbone.
        batches: Rows with their writers.
        seed: Seed of the masks.

    Raises:
        ExportError: The tokenizer has no mask token.
    """

    def __init__(self, learner: TransformerLearner, batches: WriterBatches, seed: int) -> None:
        tokenizer = learner.tokenizer
        ids = [tokenizer.token_to_id(name) for name in _NAMES]
        self._mask_id = next((number for number in ids if number is not None), None)
        if self._mask_id is None:
            raise ExportError("the model's tokenizer has no token for a masked word")
        self._vocabulary = tokenizer.get_vocab_size(with_added_tokens=False)
        self._special = sorted(
            number for number, token in tokenizer.get_added_tokens_decoder().items()
            if token.special
        )  # fmt: skip
        self._batches, self._seed = batches, seed

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return len(self._batches)

    def batch(self, epoch: int, position: int) -> dict[str, Any]:
        """Return the arguments of ``MaskedModule.forward``."""
        batch = self._batches.batch(epoch, position)
        ids, present = batch["ids"].numpy(), batch["mask"].numpy() == 1
        rng = np.random.default_rng((self._seed, epoch, position, 1))
        free = present & ~np.isin(ids, self._special)
        drawn = np.where(free, rng.random(ids.shape), 2.0)
        # At least one token is masked, because a mean over no words is not finite.
        chosen = (drawn < _SHARE) | (drawn == drawn.min())
        draws, random_ids = rng.random(ids.shape), rng.integers(self._vocabulary, size=ids.shape)
        inputs = np.where(draws < _MASKED, self._mask_id, np.where(draws < _OTHER, random_ids, ids))
        batch["hidden"] = torch.from_numpy(np.where(chosen, ids, _NONE))
        batch["ids"] = torch.from_numpy(np.where(chosen, inputs, ids))
        return batch
