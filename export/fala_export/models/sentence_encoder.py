"""Combine a transformer and its pooling in one torch module, which is trained and exported.

Pooling is sentence-transformers' module. Attention and layer pooling are defined here, because the
library has neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers.sentence_transformer.modules import Dense, Pooling
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from fala_export.base.errors import ExportError

_ATTENTION_DIMENSION = 200  # Length of the queries in NRMS (Wu et al., EMNLP 2019), section 3.3.
_WEIGHTS = "model.safetensors"
# Names of settings with a value for each layer: "layer_types", "attention_window".
_EACH_LAYER = re.compile("layer|window")
LAYERS: Literal["layers"] = "layers"
"""The name of ``LayerPooling``."""


class AttentionPooling(nn.Module):
    """Additive attention over a text's tokens, as a module of sentence-transformers.

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
        self.pooling_output_dimension = dimension

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Pool ``token_embeddings`` (n, length, dim) to ``sentence_embedding`` (n, dim)."""
        states, mask = features["token_embeddings"], features["attention_mask"]
        scores = torch.tanh(self.projection(states)) @ self.query
        weights = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min).softmax(dim=1)
        return {**features, "sentence_embedding": (weights.unsqueeze(-1) * states).sum(dim=1)}

    def save(self, output_path: str, **_: object) -> None:
        """Write the weights into a folder."""
        save_file(self.state_dict(), Path(output_path) / _WEIGHTS)

    @classmethod
    def load(cls, folder: str, **_: object) -> AttentionPooling:
        """Read the weights from a folder."""
        state = load_file(Path(folder) / _WEIGHTS)
        pooling = cls(state["projection.weight"].shape[1], len(state["query"]))
        pooling.load_state_dict(state)
        return pooling


class LayerPooling(nn.Module):
    """The mean states of a text's tokens in three layers, concatenated.

    A pre-trained model's last layer serves its own task, and inner layers keep more of the wording
    (Liu et al., "Linguistic Knowledge and Transferability of Contextual Representations", NAACL
    2019). The layers are a third, two thirds and the last. Each part has length 1, so that none
    outweighs the others.

    Args:
        dimension: Length of a token's state.
        layers: Number of the transformer's layers.
    """

    def __init__(self, dimension: int, layers: int) -> None:
        super().__init__()
        self.layers = sorted({max(1, round(layers * third / 3)) for third in (1, 2, 3)})
        self.pooling_output_dimension = dimension * len(self.layers)

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        """Pool ``all_layer_embeddings``, from the input embeddings on, each (n, length, dim)."""
        mask = features["attention_mask"].unsqueeze(-1)
        states = [features["all_layer_embeddings"][layer] for layer in self.layers]
        # Each sum has the direction of the mean.
        parts = [(mask * layer).sum(dim=1) for layer in states]
        parts = [nn.functional.normalize(part, dim=1) for part in parts]
        return {**features, "sentence_embedding": torch.cat(parts, dim=1)}


Pooler: TypeAlias = Pooling | AttentionPooling | LayerPooling


class Ending(nn.Module):
    """The computation from the states of texts' tokens to one embedding per text.

    Args:
        pooler: The module that pools the states; None if they are pooled already, and only the
            steps follow.
        width: Length of a token's state, or of a pooled embedding.
        steps: Modules of sentence-transformers after the pooling, such as ``Dense``.
        normalize: Whether embeddings are finally scaled to length 1.

    Attributes:
        cut: Number of leading dimensions of the steps' result that are the embedding (Kusupati et
            al., "Matryoshka Representation Learning", NeurIPS 2022); None uses all.
    """

    def __init__(
        self,
        pooler: Pooler | None,
        width: int,
        *,
        steps: Iterable[nn.Module] = (),
        normalize: bool = False,
    ) -> None:
        super().__init__()
        self.pooler, self.width = pooler, width
        self.steps = nn.Sequential(*steps)
        self.normalize = normalize
        self.cut: int | None = None

    @property
    def pooling(self) -> str:
        """The pooling's name: ``"none"``, ``"attention"``, ``"layers"``, or the library's modes."""
        if self.pooler is None:
            return "none"
        if isinstance(self.pooler, AttentionPooling):
            return "attention"
        if isinstance(self.pooler, LayerPooling):
            return LAYERS
        mode = self.pooler.pooling_mode
        return mode if isinstance(mode, str) else "+".join(mode)

    @property
    def empty(self) -> bool:
        """Whether the states are the embeddings: nothing pools, changes, cuts or scales them."""
        return self.pooler is None and not (len(self.steps) or self.normalize or self.cut)

    @property
    def dimension(self) -> int:
        """Length of an embedding."""
        return self.full_dimension if self.cut is None else self.cut

    @property
    def full_dimension(self) -> int:
        """Length of an embedding before it is cut."""
        for step in reversed(self.steps):
            if isinstance(step, Dense):
                return int(step.out_features)
        return self.width if self.pooler is None else int(self.pooler.pooling_output_dimension)

    def forward(
        self,
        states: Tensor,
        attention_mask: Tensor | None = None,
        layers: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """Pool the states of texts' tokens to embeddings (n, dim).

        Args:
            states: States of the last layer, shape (n, length, width); pooled states, (n, width),
                if there is no pooling.
            attention_mask: Mask that is 1 for each token, shape (n, length).
            layers: States of each layer, starting with the input embeddings; only ``LayerPooling``
                needs them.
        """
        features: dict[str, Any] = {"sentence_embedding": states}
        if self.pooler is not None:
            features = self.pooler({
                "token_embeddings": states,
                "attention_mask": attention_mask,
                "all_layer_embeddings": layers,
            })  # fmt: skip
        pooled: Tensor = self.steps(features)["sentence_embedding"][:, : self.cut]
        return nn.functional.normalize(pooled, dim=1) if self.normalize else pooled


class SentenceEncoder(nn.Module):
    """A module from token ids to one embedding per text.

    Args:
        transformer: A ``transformers`` encoder.
        pooling: ``"layers"``; a mode of sentence-transformers' ``Pooling``,
            such as ``"mean"`` (masked) or ``"cls"`` (the first token); or a module that pools.

    Attributes:
        end: The computation that follows the transformer, at first the pooling alone.
    """

    def __init__(self, transformer: PreTrainedModel, pooling: str | Pooler) -> None:
        super().__init__()
        self.transformer = transformer
        width, pooler = state_width(transformer), pooling
        if pooler == LAYERS:
            pooler = LayerPooling(width, layer_count(transformer.config))
        elif isinstance(pooler, str):
            pooler = Pooling(width, pooler)
        self.end = Ending(pooler, width)

    def pooled_by(self, pooling: str | Pooler) -> SentenceEncoder:
        """Return the same transformer with another pooling, in evaluation mode."""
        other = SentenceEncoder(self.transformer, pooling)
        other.end.steps = self.end.steps
        other.end.normalize, other.end.cut = self.end.normalize, self.end.cut
        return other.eval()

    @property
    def layers(self) -> list[int]:
        """The pooled layers, counted from 1."""
        if isinstance(self.end.pooler, LayerPooling):
            return self.end.pooler.layers
        return [layer_count(self.transformer.config)]

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Embed texts.

        Args:
            input_ids: Token ids, shape (n, length).
            attention_mask: Mask that is 1 for each token, of the same shape.

        Returns:
            The embeddings, shape (n, dim).
        """
        output = self.transformer(
            input_ids=input_ids,
            attention_mask=attention_mask,
            output_hidden_states=isinstance(self.end.pooler, LayerPooling),
        )
        embeddings: Tensor = self.end(
            output.last_hidden_state, attention_mask, output.hidden_states
        )
        return embeddings


def state_width(transformer: PreTrainedModel) -> int:
    """Return the length of a token's state."""
    return int(transformer.config.get_text_config().hidden_size)


def layer_count(config: PretrainedConfig) -> int:
    """Return a transformer's number of layers, or 0 if its configuration has no such number."""
    return int(getattr(config.get_text_config(), "num_hidden_layers", 0))


def keep_layers(config: PretrainedConfig, kept: int) -> bool:
    """Change a configuration so that only a transformer's first layers are loaded.

    Args:
        config: The configuration, which is changed in place.
        kept: Number of layers to keep.

    Returns:
        Whether the transformer had more layers.

    Raises:
        ExportError: The model has fewer layers, or its family has no number of layers.
    """
    layers, text = layer_count(config), config.get_text_config()
    if kept > layers:
        raise ExportError(f"the model has {layers} layers, so it cannot be cut after layer {kept}")
    if kept == layers:
        return False
    for name, value in vars(text).copy().items():
        if isinstance(value, list) and len(value) == layers and _EACH_LAYER.search(name):
            setattr(text, name, value[:kept])
    # If a family's number of layers is the sum of others, it is a property without a setter, or
    # with a setter that refuses.
    try:
        text.num_hidden_layers = kept
    except (AttributeError, NotImplementedError) as error:
        raise ExportError(f"a {config.model_type} model cannot be cut after a layer") from error
    return True


def has_layers(transformer: PreTrainedModel) -> bool:
    """Return whether a transformer returns each layer's states, including the input embeddings."""
    ids = torch.zeros((1, 1), dtype=torch.long)
    with torch.inference_mode():
        output = transformer(ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
    widths = [states.shape[-1] for states in output.hidden_states or ()]
    return widths == [state_width(transformer)] * (layer_count(transformer.config) + 1)


def drop_pooler(transformer: PreTrainedModel) -> None:
    """Drop the layer after the last state, which no embedding uses.

    If the model's files lack this layer, it is random at every load.
    """
    if hasattr(transformer, "pooler"):
        transformer.pooler = None
