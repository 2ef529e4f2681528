"""A backbone with an adapter or a prompt in it: the same session as without, for all alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fala.backbones.protocol import Backbone
from fala.backbones.state import EncoderState
from fala.errors import BundleFormatError


class AdaptedBackbone:
    """A backbone that is given the same state with every text.

    Args:
        backbone: The backbone, loaded.
        state: Its state.
    """

    is_transformer = True

    def __init__(self, backbone: Backbone, state: EncoderState) -> None:
        self._backbone, self._state = backbone, state

    @property
    def dimension(self) -> int:
        """Length of an embedding."""
        return self._backbone.dimension

    def encode(
        self, texts: Sequence[str], state: EncoderState | None = None
    ) -> NDArray[np.float32]:
        """Embed texts; see ``Backbone``."""
        if state is not None:
            raise BundleFormatError("a backbone with an adapter or a prompt takes no other state")
        return self._backbone.encode(texts, self._state)

    @property
    def plain(self) -> Backbone:
        """The backbone as it is."""
        return self._backbone


def plain_of(backbone: Backbone) -> Backbone:
    """A backbone without its adapter or prompt, where it has one."""
    return backbone.plain if isinstance(backbone, AdaptedBackbone) else backbone
