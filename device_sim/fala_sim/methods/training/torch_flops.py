"""Floating point operations of transformers, forward and backward, by operator, without computing.

A model runs on torch's meta device, where tensors have shapes and no numbers, under
``torch.utils.flop_counter``. It counts matrix products, which dominate: a multiply-add is two
operations, and elementwise work (activations, norms, softmax, dropout, sums, the optimizer's step,
embedding look-ups) is not counted. Attention counts as two products forward and four backward; a
fused kernel that recomputes the scores in the backward pass needs five backward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fala_sim.methods.training.transformer import Adapt, skeleton

#: Numbers of texts and of tokens of one training batch here; the paper does not state its own.
BATCH, TOKENS = 16, 128


@dataclass(frozen=True)
class Flops:
    """Operations of one batch, forward and backward.

    Attributes:
        forward: Forward operations, by torch's name of the operator.
        backward: Backward operations, by the same names; empty if nothing trains.
    """

    forward: Mapping[str, int]
    backward: Mapping[str, int]

    def totals(self) -> tuple[int, int]:
        """Return the total forward and backward operations."""
        return sum(self.forward.values()), sum(self.backward.values())


def count_flops(model: nn.Module, texts: int, tokens: int, logits: int = 1) -> Flops:
    """Count one batch through an encoder and a new head.

    Args:
        model: A ``transformers`` encoder on the meta device; frozen layers need no gradient.
        texts: Number of texts in the batch.
        tokens: Number of tokens in each text, padding included.
        logits: Number of rows of the head, whose weights train.
    """
    encoder: Any = model
    with torch.device("meta"):  # for tensors that the model creates itself
        weight = torch.zeros((logits, encoder.config.hidden_size), requires_grad=True)
        ids = torch.zeros((texts, tokens), dtype=torch.long)
        with FlopCounterMode(display=False) as forward:
            # Vectors are built without a mask, because models read the numbers of token ids and
            # masks.
            vectors = encoder.get_input_embeddings()(ids)
            states = encoder(inputs_embeds=vectors).last_hidden_state
            result = (states.mean(1) @ weight.T).sum()
    with FlopCounterMode(display=False) as backward:
        torch.autograd.backward(result)
    return Flops(_by_operator(forward), _by_operator(backward))


class BatchFlops:
    """Totals for any batch of one model, from a few counts.

    Each product of an encoder either scales with a batch's texts or not, and it scales with tokens,
    token pairs or neither. A total is therefore a polynomial, linear in texts and quadratic in
    tokens, which six counts determine. A seventh count validates it; a model that fails is counted
    batch by batch.

    Args:
        model: Model as ``count_flops`` takes it.
        longest: Number of tokens of the longest text.
        logits: Number of logits as ``count_flops`` takes it.
    """

    def __init__(self, model: nn.Module, longest: int, logits: int = 1) -> None:
        self._model, self._logits = model, logits
        self._counted: dict[tuple[int, int], tuple[int, int]] = {}
        lengths = sorted({max(longest // part, 1) for part in (8, 4, 2)})
        shapes = [(texts, tokens) for texts in (1, 2) for tokens in lengths]
        terms = np.array([_terms(*shape) for shape in shapes])
        totals = np.array([self._count(*shape) for shape in shapes], np.float64)
        self._factors: Any = np.linalg.lstsq(terms, totals, rcond=None)[0]
        check = (3, longest)
        self._polynomial = self._predict(*check) == self._count(*check)

    def __call__(self, texts: int, tokens: int) -> tuple[int, int]:
        """Return the forward and backward operations of a batch."""
        return self._predict(texts, tokens) if self._polynomial else self._count(texts, tokens)

    def _predict(self, texts: int, tokens: int) -> tuple[int, int]:
        forward, backward = np.array(_terms(texts, tokens)) @ self._factors
        return round(forward), round(backward)

    def _count(self, texts: int, tokens: int) -> tuple[int, int]:
        shape = (texts, tokens)
        if shape not in self._counted:
            self._counted[shape] = count_flops(self._model, texts, tokens, self._logits).totals()
        return self._counted[shape]


@cache
def batch_flops(folder: Path, adapt: Adapt, longest: int, logits: int) -> BatchFlops:
    """Return the totals of a folder's model as a method trains it, counted once per process.

    Raises:
        fala.DataError: The folder has no model, or the method cannot train it.
    """
    return BatchFlops(adapted(skeleton(folder), adapt), longest, logits)


def adapted(model: nn.Module, adapt: Adapt) -> nn.Module:
    """Return a model of ``skeleton`` as a method trains it."""
    with torch.device("meta"):
        return adapt(model).eval()  # evaluation mode has no dropout, which is not counted


def _terms(texts: int, tokens: int) -> list[int]:
    return [term * part for part in (1, texts) for term in (1, tokens, tokens**2)]


def _by_operator(counter: FlopCounterMode) -> dict[str, int]:
    counts = counter.get_flop_counts()["Global"]
    return {str(operator): int(flops) for operator, flops in counts.items()}
