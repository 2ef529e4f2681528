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
from fala_sim.solve_flops import ridge_flops
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


def table1(texts: int = BATCH, tokens: int = TOKENS) -> list[dict[str, Any]]:
    """The paper's Table 1: one training batch of BERT-base and RoBERTa-base, by method.

    The paper (section 4.4.2, with TensorFlow's profiler) does not tell its batch. Its 1.3563e12
    forward for BERT-base are 60.7 texts of 128 tokens by our count, or 14.4 of 500, or 264 news
    titles of 30; its RoBERTa-base has exactly twice of everything, where the two models differ in
    their vocabulary alone and so cost the same: it was measured on twice the batch. Compare ratios:
    backward to forward, and a method to ``full``. Its Adapter costs 2.79 % more forward, which of
    the usual bottlenecks only 64 units come near to (2.70 % here).

    FaLA trains the matrix alone: its backward pass is one product, the gradient of theta. Its
    closed form does not even do that; what solving costs instead is ``solve_flops``, and choosing
    is ``fala_sim.solve_flops.clustering_flops``.

    Args:
        texts: In a batch.
        tokens: In each text.

    Returns:
        A plain row for each backbone and method: ``backbone``, ``method`` (as in records),
        ``batch`` (``examples``, ``tokens``), ``forward_flops``, ``backward_flops``, ``forward`` and
        ``backward`` (the same by operator); and ``solve_flops`` for FaLA, on the batch's examples.
    """
    from transformers import BertConfig, RobertaConfig

    # RoBERTa-base as published; the class's own defaults are another vocabulary's.
    roberta = RobertaConfig(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1)
    methods: dict[str, Adapt] = {
        Full.name: Full.adapt,
        Adapter.name: Adapter.adapt,
        Lora.name: Lora.adapt,
        "fala-paper": _freeze,
    }
    rows: list[dict[str, Any]] = []
    for backbone, config in {"BERT-base": BertConfig(), "RoBERTa-base": roberta}.items():
        for method, adapt in methods.items():
            flops = count(_adapted(skeleton_of(config), adapt), texts, tokens)
            forward, backward = flops.totals()
            row = {
                "backbone": backbone,
                "method": method,
                "batch": {"examples": texts, "tokens": tokens},
                "forward_flops": forward,
                "backward_flops": backward,
                "forward": dict(flops.forward),
                "backward": dict(flops.backward),
            }
            if adapt is _freeze:
                row["solve_flops"] = ridge_flops(texts, 1, config.hidden_size)
            rows.append(row)
    return rows


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
