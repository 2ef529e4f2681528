"""A transformer that can be trained, embedding texts as its bundle does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer
from transformers.utils import logging as transformers_logging

from fala import Bundle, DataError
from fala.release import tokenizer_inputs

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

#: Marks which of a model's parameters train, adding to the model what the method adds.
Adapt: TypeAlias = Callable[[nn.Module], nn.Module]

_POOLINGS = ("mean", "cls")
_BATCH = 32  # texts that are embedded at once


class Transformer(nn.Module):
    """Texts to embeddings; everything in it may be trained.

    Args:
        model: A ``transformers`` encoder.
        tokenizer: Its own.
        pooling: ``"mean"`` (of a text's tokens) or ``"cls"`` (the first token).
        normalized: Whether embeddings are scaled to length 1.
        longest: Tokens that a text is cut to.

    Attributes:
        model: The encoder; what trains it may wrap it.
        dimension: d, the length of an embedding.
        longest: As given.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        pooling: str,
        normalized: bool,
        longest: int,
    ) -> None:
        super().__init__()
        self.model: nn.Module = model
        self.dimension = int(model.config.hidden_size)
        self._tokenizer = tokenizer
        self._pooling = pooling
        self._normalized = normalized
        self.longest = longest

    @classmethod
    def open(cls, folder: Path, bundle: Path) -> Transformer:
        """Load a model's folder, to embed as the bundle made from it does.

        Args:
            folder: The model and its tokenizer as Hugging Face has them.
            bundle: Says how states become an embedding, and where texts are cut.

        Raises:
            DataError: If the folder is not such a model, or its pooling is not known here.
            fala.BundleError: If the bundle cannot be opened.
        """
        manifest = Bundle.open(bundle).manifest
        pooling = manifest.details.get("pooling")
        if manifest.max_length is None or pooling not in _POOLINGS:
            raise DataError(
                f"{bundle}: the pooling is {pooling!r}, and what trains a transformer here knows "
                f"{' and '.join(_POOLINGS)}; export the backbone with one of these"
            )
        with _reading(folder):
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            model = AutoModel.from_pretrained(folder, local_files_only=True)
        if model.config.hidden_size != manifest.dimension:
            raise DataError(
                f"{folder}: its states have {model.config.hidden_size} numbers, the embeddings of "
                f"{bundle} {manifest.dimension}; give the folder that the bundle was made from"
            )
        normalized = bool(manifest.details.get("normalized"))
        return cls(without_pooler(model), tokenizer, pooling, normalized, manifest.max_length)

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of some texts, cut to ``longest``."""
        if not texts:
            return []
        ids: list[list[int]] = self._tokenizer(
            tokenizer_inputs(texts),
            truncation=True,
            max_length=self.longest,
            return_attention_mask=False,
        )["input_ids"]
        return ids

    def forward(self, tokens: Sequence[Sequence[int]]) -> Tensor:
        """Embed n texts given as token ids, padded to the longest: shape (n, d)."""
        length = max(map(len, tokens))
        ids = torch.full((len(tokens), length), self._tokenizer.pad_token_id or 0)
        mask = torch.zeros((len(tokens), length), dtype=torch.long)
        for row, text in enumerate(tokens):
            ids[row, : len(text)] = torch.tensor(text)
            mask[row, : len(text)] = 1
        states: Tensor = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        if self._pooling == "cls":
            pooled = states[:, 0]
        else:
            weights = mask.unsqueeze(-1).to(states.dtype)
            pooled = (states * weights).sum(1) / weights.sum(1)
        return nn.functional.normalize(pooled, dim=1) if self._normalized else pooled

    @torch.inference_mode()
    def embed(self, texts: Sequence[str]) -> Tensor:
        """Embeddings of n texts, shape (n, d), without dropout and gradients."""
        tokens = self.tokens(texts)
        order = sorted(range(len(tokens)), key=lambda row: len(tokens[row]))
        result = torch.empty((len(tokens), self.dimension))
        training = self.training
        self.eval()
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            result[rows] = self([tokens[row] for row in rows])
        self.train(training)
        return result


def skeleton(folder: Path) -> nn.Module:
    """A folder's model without numbers, on torch's meta device: it has shapes and operators only.

    Its attention is written out as products, which cost what the fused kernel's products do; the
    fused one asks for the mask's numbers, of which there are none.

    Raises:
        DataError: If the folder has no model's configuration.
    """
    with _reading(folder):
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    return skeleton_of(config)


def skeleton_of(config: PretrainedConfig) -> nn.Module:
    """As ``skeleton``, of a ``transformers`` configuration."""
    with torch.device("meta"):
        return without_pooler(AutoModel.from_config(config, attn_implementation="eager"))


def without_pooler(model: PreTrainedModel) -> nn.Module:
    """Drop the layer after the last state: no embedding uses it, so nothing should train it."""
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    result: nn.Module = model
    return result


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Say which folder is no model, and keep the library's advice to itself."""
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    except Exception as error:  # OSError, ValueError, KeyError, safetensors' and tokenizers' own
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{folder}: not a transformer with its tokenizer: {first}") from error
    finally:
        transformers_logging.set_verbosity(level)
