"""Floating point operations of transformers, forward and backward, by operator, without computing.

A model runs on torch's meta device, where tensors have shapes and no numbers, under
``torch.utils.flop_counter``. That counts the products of matrices, which are all that matters: a
multiply-add is two operations, and what works element by element (activations, norms, softmax,
dropout, sums, the optimizer's step, looking up embeddings) is not counted. Attention is counted as
its two products forward and four backward; a fused kernel that computes the scores anew in the
backward pass would do a fifth.
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

from fala_sim.training.transformer import Adapt, skeleton

#: What one training batch is here where the shape is free; the paper does not tell its own.
BATCH, TOKENS = 16, 128


@dataclass(frozen=True)
class Flops:
    """Operations of one batch, forward and back.

    Attributes:
        forward: By torch's name of the operator.
        backward: Likewise; empty where nothing trains.
    """

    forward: Mapping[str, int]
    backward: Mapping[str, int]

    def totals(self) -> tuple[int, int]:
        """Forward and backward."""
        return sum(self.forward.values()), sum(self.backward.values())


def count(model: nn.Module, texts: int, tokens: int, logits: int = 1) -> Flops:
    """Count one batch through an encoder and a head of its own.

    Args:
        model: A ``transformers`` encoder on the meta device; what needs no gradient is frozen.
        texts: In the batch.
        tokens: In each, padding included.
        logits: Rows of the head, whose weights train.
    """
    config: Any = model.config
    with torch.device("meta"):  # for what the model itself makes on its way
        weight = torch.zeros((logits, config.hidden_size), requires_grad=True)
        ids = torch.zeros((texts, tokens), dtype=torch.long)
        with FlopCounterMode(display=False) as forward:
            states = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
            result = (states.mean(1) @ weight.T).sum()
    with FlopCounterMode(display=False) as backward:
        torch.autograd.backward(result)
    return Flops(_by_operator(forward), _by_operator(backward))


class BatchFlops:
    """Totals for any batch of one model, from a few counts.

    Every product of an encoder is over a batch's texts or over none of them, and over its tokens,
    their pairs or neither: so a total is a polynomial, linear in the texts and quadratic in the
    tokens, and six counts give all of it. A seventh is the proof; a model that fails it is counted
    batch by batch.

    Args:
        model: As ``count`` takes it.
        longest: Tokens of the longest text.
        logits: As ``count`` takes it.
    """

    def __init__(self, model: nn.Module, longest: int, logits: int = 1) -> None:
        self._model, self._logits = model, logits
        self._counted: dict[tuple[int, int], tuple[int, int]] = {}
        lengths = sorted({max(longest // part, 1) for part in (8, 4, 2)})
        shapes = [(texts, tokens) for texts in (1, 2) for tokens in lengths]
        terms = np.array([_terms(*shape) for shape in shapes])
        totals = np.array([self._count(*shape) for shape in shapes], np.float64)
        self._factors: Any = np.linalg.lstsq(terms, totals, rcond=None)[0]
        proof = (3, longest)
        self._polynomial = self._predict(*proof) == self._count(*proof)

    def __call__(self, texts: int, tokens: int) -> tuple[int, int]:
        """Forward and backward operations of a batch."""
        return self._predict(texts, tokens) if self._polynomial else self._count(texts, tokens)

    def _predict(self, texts: int, tokens: int) -> tuple[int, int]:
        forward, backward = np.array(_terms(texts, tokens)) @ self._factors
        return round(forward), round(backward)

    def _count(self, texts: int, tokens: int) -> tuple[int, int]:
        shape = (texts, tokens)
        if shape not in self._counted:
            self._counted[shape] = count(self._model, texts, tokens, self._logits).totals()
        return self._counted[shape]


@cache
def batch_flops(folder: Path, adapt: Adapt, longest: int, logits: int) -> BatchFlops:
    """The totals of a folder's model as a method trains it; counted once in a process.

    Raises:
        fala.DataError: If the folder has no model, or the method cannot train it.
    """
    return BatchFlops(adapted(skeleton(folder), adapt), longest, logits)


def adapted(model: nn.Module, adapt: Adapt) -> nn.Module:
    """A model of ``skeleton`` as a method trains it."""
    with torch.device("meta"):
        return adapt(model).eval()  # dropout is not counted, and only takes time


def _terms(texts: int, tokens: int) -> list[int]:
    return [term * part for part in (1, texts) for term in (1, tokens, tokens**2)]


def _by_operator(counter: FlopCounterMode) -> dict[str, int]:
    counts = counter.get_flop_counts()["Global"]
    return {str(operator): int(flops) for operator, flops in counts.items()}
