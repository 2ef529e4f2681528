"""A backbone that reads a text after a writer's prompt, its soft prompts, and its head."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from transformers import DynamicCache

from fala.base.errors import with_article
from fala.base.examples import CLASSIFICATION
from fala.cli import progress
from fala.model.heads import Head
from fala_export import Encoder, ExportError, cross_entropies
from fala_export.base.accelerator import torch_device
from studies.perplm.inputs import PLAIN, WriterInputs

_VERSION = tuple(map(int, transformers.__version__.split(".")[:2]))
# The name of the argument for keys and values that were computed before.
_CACHE = "past_key_values" if _VERSION < (5, 24) else "cache"

#: How many times as fast as the backbone a writer's bias moves; see ``SoftPrompts``.
_BIAS_PACE = 300.0
_HIDDEN = 512  # width of the MLP, as in prefix-tuning (Li and Liang, ACL 2021)
_DEVIATION = 0.02  # standard deviation of numbers that go into the backbone directly, as in BERT
_MORE = 10.0  # factor of the pace for the MLP's input, whose numbers are around 1


class SoftPrompts(nn.Module):
    """A prompt for each of W writers, and for the unknown one.

    All writers start as the unknown one. AdamW moves every number by about its learning rate per
    step, whatever the gradient, and a writer's numbers have only a few dozen steps. Prompts are
    therefore stored divided by ``pace``, and move that many times as fast as the backbone.

    Args:
        writers: W, the number of writers.
        length: Number of vectors of a prompt.
        width: Numbers of a vector in the backbone.
        inner: Numbers of a vector before the MLP; None for no MLP.
        pace: Pace above 0; it is ten times as large before an MLP, where numbers are far larger.
        seed: Seed of the initial prompts.
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
        self.mlp = nn.Sequential()
        if inner is not None:
            first = _Paced(inner, _HIDDEN, pace, generator)
            self.mlp.extend([first, nn.Tanh(), _Paced(_HIDDEN, width, pace, generator)])

    def forward(self, writers: Tensor) -> Tensor:
        """Return the prompts of writers by number, shape (n,); for PLAIN the unknown writer's.

        Returns:
            Prompts, shape (n, length, width).
        """
        prompts: Tensor = self.mlp(self.pace * self.table[writers.clamp(min=0)])
        return prompts


class _Paced(nn.Module):
    """A linear layer whose weights are stored divided by their pace."""

    def __init__(self, inputs: int, outputs: int, pace: float, generator: torch.Generator) -> None:
        super().__init__()
        self._pace = pace
        bound = inputs**-0.5
        weight = torch.empty(outputs, inputs).uniform_(-bound, bound, generator=generator)
        self.weight = nn.Parameter(weight / pace)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        return functional.linear(inputs, self._pace * self.weight, self._pace * self.bias)


_AFTER_PADDING = ("camembert", "roberta", "xlm-roberta")
FAMILY = ("bert", "electra", *_AFTER_PADDING)
"""Model types whose layers accept additional keys and values."""


def prefix_shape(encoder: Encoder) -> tuple[int, int, int]:
    """Return a backbone's numbers of layers, of heads, and of a head's dimensions.

    Raises:
        ExportError: A backbone of this kind takes no prompts.
    """
    config = encoder.module.transformer.config
    if config.model_type not in FAMILY:
        raise ExportError(
            f"writers' prompts are for {', '.join(FAMILY)} models, not for "
            f"{with_article(config.model_type)} model"
        )
    kind = getattr(config, "position_embedding_type", "absolute") or "absolute"
    if kind != "absolute":
        raise ExportError(
            f"the model's positions are {kind}, and writers' prompts need absolute ones"
        )
    heads = int(config.num_attention_heads)
    return int(config.num_hidden_layers), heads, int(config.hidden_size) // heads


class PromptedEncoder(nn.Module):
    """A module from token ids and a writer to one embedding per text.

    A soft prompt at one layer is P vectors before the text's vectors; at every layer it is P keys
    and values. A hard prompt is tokens before the text. Only the text is pooled, and it keeps its
    positions after any prompt, so without a prompt the result is the backbone's embedding.

    Args:
        encoder: The backbone.
        prompts: Soft prompts; None for other kinds.
        every_layer: Whether these are keys and values of every layer.
        both_ways: Whether a hard prompt's tokens also attend to the text; positions are then
            continuous.

    Raises:
        ExportError: A backbone of this kind takes no prompts.
    """

    def __init__(
        self,
        encoder: Encoder,
        prompts: SoftPrompts | None = None,
        *,
        every_layer: bool = False,
        both_ways: bool = False,
    ) -> None:
        super().__init__()
        self.shape = prefix_shape(encoder)
        self.encoder, self.prompts = encoder.module, prompts
        self._every_layer, self._both_ways = every_layer, both_ways
        config = encoder.module.transformer.config
        after = config.model_type in _AFTER_PADDING
        self._first = int(config.pad_token_id) + 1 if after else 0

    def forward(
        self, ids: Tensor, mask: Tensor, writers: Tensor | None = None, **context: Tensor
    ) -> Tensor:
        """Embed texts, with the arguments of ``states``; shape (n, dim)."""
        embeddings: Tensor = self.encoder.end(self.states(ids, mask, writers, **context), mask)
        return embeddings

    def states(
        self,
        ids: Tensor,
        mask: Tensor,
        writers: Tensor | None = None,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the states of the texts' tokens.

        Args:
            ids: Token ids, shape (n, length).
            mask: 1 where there is a token, the same shape.
            writers: Numbers of the writers, shape (n,); needed by soft prompts.
            context: Tokens of hard prompts, shape (n, c).
            context_mask: 1 where there is a token, the same shape.

        Returns:
            States, shape (n, length, dim).
        """
        if context is not None and context_mask is not None and context.shape[1]:
            return self._after_tokens(ids, mask, context, context_mask)
        if self.prompts is None or writers is None:
            return self._run(mask, self.positions(mask), input_ids=ids)
        # A row without a prompt has a masked prompt.
        visible = (writers != PLAIN).to(mask.dtype)[:, None].expand(-1, self.prompts.length)
        full_mask = torch.cat([visible, mask], dim=1)
        if self._every_layer:
            past = {_CACHE: cache_of(self.prefix(writers))}
            return self._run(full_mask, self.positions(mask), input_ids=ids, **past)
        transformer = self.encoder.transformer
        vectors = self.prompts(writers)
        embeddings = torch.cat([vectors, transformer.get_input_embeddings()(ids)], dim=1)
        # All vectors of the prompt have the text's first position, because they learn their order.
        positions = torch.cat([torch.full_like(visible, self._first), self.positions(mask)], dim=1)
        return self._run(full_mask, positions, inputs_embeds=embeddings)[:, self.prompts.length :]

    def prefix(self, writers: Tensor) -> Tensor:
        """Return keys and values of writers' prompts at every layer.

        Args:
            writers: Numbers of the writers, shape (n,).

        Returns:
            Keys and values, shape (layers, 2, n, heads, P, head_dimension).
        """
        if self.prompts is None:
            raise ExportError("prompts of this kind have no keys and values")
        layers, heads, dimension = self.shape
        numbers: Tensor = self.prompts(writers)
        split = numbers.view(len(writers), -1, layers, 2, heads, dimension)
        return split.permute(2, 3, 0, 4, 1, 5)

    def positions(self, mask: Tensor, after: Tensor | int = 0) -> Tensor:
        """Return positions of tokens, shape (n, length): the model's own, plus ``after``."""
        return (mask.cumsum(1) - 1).clamp(min=0) + self._first + after

    def _after_tokens(
        self, ids: Tensor, mask: Tensor, context: Tensor, context_mask: Tensor
    ) -> Tensor:
        start = context.shape[1]
        after: Tensor | int = context_mask.sum(1, keepdim=True) if self._both_ways else 0
        positions = torch.cat([self.positions(context_mask), self.positions(mask, after)], dim=1)
        full_mask = torch.cat([context_mask, mask], dim=1)
        if not self._both_ways:
            rows = full_mask[:, None, :].expand(-1, full_mask.shape[1], -1).clone()
            rows[:, :start, start:] = 0
            full_mask = _mask_by_token(rows)
        tokens = torch.cat([context, ids], dim=1)
        return self._run(full_mask, positions, input_ids=tokens)[:, start:]

    def _run(self, mask: Tensor, positions: Tensor, **inputs: Any) -> Tensor:  # noqa: ANN401
        # Token types are passed, because the model's defaults have only its number of positions.
        states: Tensor = self.encoder.transformer(
            attention_mask=mask,
            position_ids=positions,
            token_type_ids=torch.zeros_like(positions),
            **inputs,
        ).last_hidden_state
        return states


def _mask_by_token(rows: Tensor) -> Tensor:
    """Return a mask with a row for each token, (n, length, length), as ``transformers`` reads it.

    Version 4 makes it a term of the attention's scores, whereas version 5 takes such a term.
    """
    if _VERSION < (5,):
        return rows
    hidden = torch.finfo(torch.get_default_dtype()).min
    return (1 - rows[:, None]).to(torch.get_default_dtype()) * hidden


def cache_of(prefix: Tensor) -> DynamicCache:
    """Return a prefix as a cache of ``transformers``.

    Args:
        prefix: Keys and values, shape (layers, 2, n, heads, P, head_dimension).
    """
    cache = DynamicCache()
    for number, (keys, values) in enumerate(prefix):
        cache.update(keys, values, number)
    return cache


_BATCH = 32


class PromptedClassifier(nn.Module):
    """A prompted backbone with a head: z = w . h(x, writer) + b, optionally plus a writer's bias.

    Args:
        prompted: The backbone with its prompts.
        head: The initial head.
        biases: Number of writers with their own bias; 0 for other kinds.
    """

    def __init__(self, prompted: PromptedEncoder, head: Head, biases: int = 0) -> None:
        super().__init__()
        self.prompted = prompted
        self.labels = head.labels
        self.weight = nn.Parameter(torch.from_numpy(head.weight.copy()))
        self.bias = nn.Parameter(torch.from_numpy(head.bias.copy()))
        if biases:
            self.own_bias = nn.Parameter(torch.zeros(biases + 1, *head.bias.shape))

    def outputs(self, writers: Tensor, **inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return z and h of texts, (n, C) and (n, dim); see ``PromptedEncoder.states``."""
        embeddings = self.prompted(writers=writers, **inputs)
        logits = embeddings @ self.weight.T + self.bias
        if hasattr(self, "own_bias"):
            logits = logits + _BIAS_PACE * self.own_bias[writers.clamp(min=0)]
        return logits, embeddings

    def forward(self, shares: Tensor, **inputs: Tensor) -> dict[str, Tensor]:
        """Return the loss over rows.

        Args:
            shares: Shares of the labels, 0 or 1, shape (n, C); of the second label alone if C = 1.
            inputs: Arguments of ``outputs``.
        """
        logits, _ = self.outputs(**inputs)
        loss = cross_entropies(logits, shares).mean()
        return {"loss": loss, "weight": torch.tensor(float(len(shares)))}

    @property
    def head(self) -> Head:
        """The trained head."""
        parts = (self.weight.detach().numpy().copy(), self.bias.detach().numpy().copy())
        return Head(CLASSIFICATION, self.labels, *parts)


def predict(
    module: PromptedClassifier, inputs: WriterInputs, numbers: list[int], label: str
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return logits (n, C) and embeddings (n, dim) of rows, each after the prompt of a writer.

    Args:
        module: Module in evaluation mode.
        inputs: n rows.
        numbers: Number of the writer whose prompt is used, for each row.
        label: Title of the progress bar.
    """
    logits = np.empty((len(inputs), len(module.bias)), dtype=np.float32)
    embeddings = np.empty((len(inputs), module.weight.shape[1]), dtype=np.float32)
    lengths = inputs.lengths
    distinct, positions = inputs.distinct(numbers)
    order = sorted(distinct, key=lengths.__getitem__)
    place = torch_device()
    module.to(place)
    with torch.inference_mode(), progress(label, len(order)) as bar:
        for start in range(0, len(order), _BATCH):
            chosen = order[start : start + _BATCH]
            batch = inputs.take(chosen, [numbers[row] for row in chosen])
            arguments = {name: value.to(place) for name, value in batch.items()}
            outputs = module.outputs(**arguments)
            logits[chosen], embeddings[chosen] = (part.cpu().numpy() for part in outputs)
            bar.update(len(chosen))
    module.cpu()
    rows = np.asarray(distinct, dtype=np.int64)[positions]
    return logits[rows], embeddings[rows]
