"""What every backbone does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fala.backbones.state import EncoderState


class Backbone(Protocol):
    """A frozen text encoder."""

    @property
    def dimension(self) -> int:
        """Length of an embedding."""

    @property
    def is_transformer(self) -> bool:
        """Whether encoding a text is a forward pass, the currency of every budget."""

    def encode(
        self, texts: Sequence[str], state: EncoderState | None = None
    ) -> NDArray[np.float32]:
        """Embed texts.

        Args:
            texts: n texts.
            state: A task's adapter or a writer's prompt, for a backbone that takes one.

        Returns:
            The embeddings, shape (n, dimension).

        Raises:
            DataError: An item is not a text; names its position.
            BundleFormatError: The backbone takes no state, or not this one.
        """
