"""What is fed to a backbone's optional inputs: a task's adapter, a writer's prompt."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class EncoderState:
    """What is fed beside every text.

    Attributes:
        inputs: Float32 arrays by the names of the graph's inputs.
        digest: SHA-256 of what they are; with the backbone's it is the provenance of embeddings.
    """

    inputs: Mapping[str, NDArray[np.float32]]
    digest: str


def provenance(backbone: str, state: EncoderState | None = None) -> str:
    """The digest that stored embeddings and logits carry.

    Args:
        backbone: The backbone's digest.
        state: What it was fed beside the texts.

    Returns:
        The backbone's own digest where that is nothing; else one of both.
    """
    if state is None:
        return backbone
    return hashlib.sha256(f"{backbone}\n{state.digest}".encode()).hexdigest()
