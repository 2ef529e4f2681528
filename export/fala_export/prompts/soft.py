"""Soft prompts: vectors of each writer, through an MLP that all writers share."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

_HIDDEN = 512  # of the MLP, as prefix-tuning has it (Li and Liang, ACL 2021)
_DEVIATION = 0.02  # of numbers that go into the backbone as they are; BERT's own, too
_MORE = 10.0  # times the pace, of numbers around 1 that go into the MLP


class SoftPrompts(nn.Module):
    """A prompt for each of W writers, and for the unknown one.

    All writers start as the unknown one. AdamW moves every number by about its learning rate a
    step, whatever the gradient, and a writer's have a few dozen steps: prompts are kept divided by
    ``pace``, which is to move them that many times as fast as the backbone.

    Args:
        writers: W.
        length: Vectors of a prompt.
        width: Numbers of each that the backbone takes.
        inner: Numbers of each that the MLP takes; None has no MLP.
        pace: Above 0; ten times that for what the MLP takes, whose numbers are far larger.
        seed: Of where they start.
    """

    def __init__(
        self, writers: int, length: int, width: int, inner: int | None, pace: float, seed: int
    ) -> None:
        super().__init__()
        self.length = length
        self.pace = pace if inner is None else _MORE * pace
        generator = torch.Generator().manual_seed(seed)
        deviation = _DEVIATION if inner is None else 1.0
        start = torch.randn(length, inner or width, generator=generator) * deviation
        self.table = nn.Parameter((start / self.pace).repeat(writers + 1, 1, 1))
        self.inner: _Paced | None = None
        self.outer: _Paced | None = None
        if inner is not None:
            self.inner = _Paced(inner, _HIDDEN, pace, generator)
            self.outer = _Paced(_HIDDEN, width, pace, generator)

    def forward(self, writers: Tensor) -> Tensor:
        """The prompts of writers by number, shape (n,); those of PLAIN are the unknown writer's.

        Returns:
            Shape (n, length, width).
        """
        vectors = self.pace * self.table[writers.clamp(min=0)]
        if self.inner is None or self.outer is None:
            return vectors
        result: Tensor = self.outer(torch.tanh(self.inner(vectors)))
        return result


class _Paced(nn.Module):
    """A linear layer whose numbers are kept divided by their pace."""

    def __init__(self, inputs: int, outputs: int, pace: float, generator: torch.Generator) -> None:
        super().__init__()
        self._pace = pace
        bound = inputs**-0.5
        weight = torch.empty(outputs, inputs).uniform_(-bound, bound, generator=generator)
        self.weight = nn.Parameter(weight / pace)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        return functional.linear(inputs, self._pace * self.weight, self._pace * self.bias)
