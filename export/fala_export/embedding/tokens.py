"""Embed tokenized texts with a torch module, on the accelerator if there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fala_export.base.accelerator import torch_device

# Tokens of a batch, including padding: more do not fit a processor's caches, and fewer leave a GPU
# idle.
_TOKENS = {"cpu": 1 << 11, "mps": 1 << 13, "cuda": 1 << 15}


def pad(ids: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Pad token ids to one length.

    Returns:
        The ids and the mask, both of shape (n, longest).
    """
    lengths = np.array([len(row) for row in ids])
    mask = np.arange(max(1, lengths.max())) < lengths[:, None]
    rows = np.full(mask.shape, pad_id, dtype=np.int64)
    rows[mask] = [token for row in ids for token in row]
    return torch.from_numpy(rows), torch.from_numpy(mask.astype(np.int64))


@contextmanager
def placed(module: nn.Module) -> Iterator[None]:
    """Move a module to the accelerator, and back to the CPU."""
    module.to(torch_device())
    try:
        yield
    finally:
        module.cpu()


def batches(lengths: Sequence[int], most: int) -> list[list[int]]:
    """Return positions of texts of similar length, in batches of at most ``most`` tokens.

    Args:
        lengths: Number of tokens of each text.
        most: Most tokens of a batch, including padding; a longer text is a batch of its own.
    """
    result: list[list[int]] = []
    longest = 0
    for position in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if not result or (len(result[-1]) + 1) * longest > most:
            result.append([])
            longest = max(1, lengths[position])
        result[-1].append(position)
    return result


def embed_tokens(
    module: nn.Module,
    ids: Sequence[Sequence[int]],
    pad_id: int,
    dimension: int,
    step: Callable[[int], None] = lambda _: None,
    *,
    half: bool = False,
) -> NDArray[np.float32]:
    """Embed tokenized texts on the module's device; see ``placed``.

    Args:
        module: A module that returns embeddings for token ids and a mask.
        ids: Token ids of n texts.
        pad_id: Id of the padding token.
        dimension: Length of an embedding.
        step: A function called after every batch with its number of texts.
        half: Whether a GPU computes in bfloat16.

    Returns:
        The embeddings, shape (n, dimension).
    """
    result = np.empty((len(ids), dimension), dtype=np.float32)
    place = next(module.parameters()).device
    autocast: AbstractContextManager[object] = nullcontext()
    if half and place.type == "cuda":
        autocast = torch.autocast(place.type, torch.bfloat16)
    with torch.inference_mode(), autocast:
        for chosen in batches([len(row) for row in ids], _TOKENS[place.type]):
            rows, mask = pad([ids[index] for index in chosen], pad_id)
            result[chosen] = module(rows.to(place), mask.to(place)).float().cpu().numpy()
            step(len(chosen))
    return result
