"""A transformer and its pooling as one torch module: the model that is trained and exported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

POOLINGS = ("mean", "cls", "attention")
"""How the states of a text's tokens become its embedding."""

_ATTENTION_DIMENSION = 200  # of the queries in NRMS (Wu et al., EMNLP 2019), section 3.3


class AttentionPooling(nn.Module):
    """Additive attention over a text's tokens.

    The weight of token t is softmax_t(q . tanh(W h_t + c)): the attention of neural news
    recommenders (Wu et al., "Neural News Recommendation with Multi-Head Self-Attention", EMNLP
    2019, equations 3 and 4).

    Args:
        dimension: Length of a token's state.
        hidden: Length of the query q.
    """

    def __init__(self, dimension: int, hidden: int = _ATTENTION_DIMENSION) -> None:
        super().__init__()
        self.projection = nn.Linear(dimension, hidden)
        self.query = nn.Parameter(torch.randn(hidden) / hidden**0.5)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Pool states (n, length, dim) under a mask (n, length) to (n, dim)."""
        scores = torch.tanh(self.projection(states)) @ self.query
        weights = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min).softmax(dim=1)
        return (weights.unsqueeze(-1) * states).sum(dim=1)


class SentenceEncoder(nn.Module):
    """Token ids to one embedding a text.

    Args:
        transformer: A ``transformers`` encoder.
        pooling: ``"mean"`` (masked), ``"cls"`` (the first token), or the attention's module.
        normalize: Whether embeddings are scaled to length 1.

    Attributes:
        pooling: One of ``POOLINGS``.
        attention: The attention's module; None for the other poolings.
    """

    def __init__(
        self, transformer: PreTrainedModel, pooling: str | AttentionPooling, normalize: bool = False
    ) -> None:
        super().__init__()
        self.transformer = transformer
        self.attention = pooling if isinstance(pooling, AttentionPooling) else None
        self.pooling = pooling if isinstance(pooling, str) else "attention"
        self.normalize = normalize

    @property
    def dimension(self) -> int:
        """Length of an embedding."""
        return int(self.transformer.config.hidden_size)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Embed texts.

        Args:
            input_ids: Shape (n, length).
            attention_mask: 1 where there is a token, same shape.

        Returns:
            Shape (n, dim).
        """
        states = self.transformer(
            input_ids=input_ids, attention_mask=attention_mask
        ).last_hidden_state
        return self.pool(states, attention_mask)

    def pool(self, states: Tensor, attention_mask: Tensor) -> Tensor:
        """Bring the states of texts' tokens (n, length, dim) to embeddings (n, dim)."""
        if self.attention is not None:
            pooled = self.attention(states, attention_mask)
        elif self.pooling == "cls":
            pooled = states[:, 0]
        else:
            weights = attention_mask.unsqueeze(-1).to(states.dtype)
            pooled = (states * weights).sum(1) / weights.sum(1)
        return nn.functional.normalize(pooled, dim=1) if self.normalize else pooled
