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

from fala_sim.methods.adapter import Adapter
from fala_sim.methods.full import Full
from fala_sim.methods.lora import Lora
from fala_sim.transformer import Adapt, skeleton, skeleton_of

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
    return BatchFlops(_adapted(skeleton(folder), adapt), longest, logits)


@dataclass(frozen=True)
class TableRow:
    """One row of the paper's Table 1.

    Attributes:
        model: ``"BERT-base"`` or ``"RoBERTa-base"``.
        method: ``"base"`` (all parameters train), ``"Adapter"``, ``"LoRA"`` or ``"FaLA"``.
        texts: In the batch.
        tokens: In each.
        flops: Of that batch.
    """

    model: str
    method: str
    texts: int
    tokens: int
    flops: Flops


def table1(texts: int = BATCH, tokens: int = TOKENS) -> list[TableRow]:
    """The paper's Table 1: one training batch of BERT-base and RoBERTa-base, by method.

    The paper (section 4.4.2, with TensorFlow's profiler) does not tell its batch. Its 1.3563e12
    forward for BERT-base are 60.7 texts of 128 tokens by our count, or 14.4 of 500, or 264 news
    titles of 30; its RoBERTa-base has exactly twice of everything, where the two models differ in
    their vocabulary alone and so cost the same: it was measured on twice the batch. Compare ratios:
    backward to forward, and a method to ``base``. Its Adapter costs 2.79 % more forward, which is a
    bottleneck of 64, as here.

    FaLA trains the matrix alone: its backward pass is one product, the gradient of theta. What its
    closed form costs instead is ``solve_flops``.

    Args:
        texts: In a batch.
        tokens: In each text.
    """
    from transformers import BertConfig, RobertaConfig

    # RoBERTa-base as published; the class's own defaults are another vocabulary's.
    roberta = RobertaConfig(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1)
    methods: dict[str, Adapt] = {
        "base": Full.adapt,
        "Adapter": Adapter.adapt,
        "LoRA": Lora.adapt,
        "FaLA": _freeze,
    }
    return [
        TableRow(
            name, method, texts, tokens, count(_adapted(skeleton_of(config), adapt), texts, tokens)
        )
        for name, config in {"BERT-base": BertConfig(), "RoBERTa-base": roberta}.items()
        for method, adapt in methods.items()
    ]


def solve_flops(examples: int, dimension: int, lambdas: int = 33) -> int:
    """Operations of FaLA's closed form, to leading order: what it does instead of training.

    With m the smaller and M the larger of n examples and d dimensions:

        M m^2        the symmetric Gram matrix, half of it computed
        9 m^3        its eigendecomposition with all vectors (Golub and Van Loan, "Matrix
                     Computations", section 8.3: an upper bound, met by no divide and conquer)
        2 n d m      features on the vectors, where d < n
        4 n m L      leave-one-out residuals and leverages over L lambdas
        6 n d        features, targets on them, and theta

    Args:
        examples: n, that the matrix is fitted to.
        dimension: d.
        lambdas: L; 33 is the device's own grid.
    """
    smaller, larger = sorted((examples, dimension))
    gram = larger * smaller**2
    projected = 2 * examples * dimension * smaller if dimension < examples else 0
    path = 4 * examples * smaller * lambdas
    return gram + 9 * smaller**3 + projected + path + 6 * examples * dimension


def _adapted(model: nn.Module, adapt: Adapt) -> nn.Module:
    with torch.device("meta"):
        return adapt(model).eval()  # dropout is not counted, and only takes time


def _freeze(model: nn.Module) -> nn.Module:
    return model.requires_grad_(False)


def _terms(texts: int, tokens: int) -> list[int]:
    return [term * part for part in (1, texts) for term in (1, tokens, tokens**2)]


def _by_operator(counter: FlopCounterMode) -> dict[str, int]:
    counts = counter.get_flop_counts()["Global"]
    return {str(operator): int(flops) for operator, flops in counts.items()}
