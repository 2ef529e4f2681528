"""The interface of a backbone, and two that wrap another: loaded late, or with an adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fala.backbones.state import EncoderState
from fala.errors import BundleFormatError


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


class LazyBackbone:
    """Loads a backbone at its first use, so that opening a device does not load a model.

    Args:
        load: Loads it. ``encode`` raises its errors, and the next call loads again.
        transformer: Whether encoding a text is a forward pass.
    """

    def __init__(self, load: Callable[[], Backbone], *, transformer: bool) -> None:
        self._load = load
        self._loaded: Backbone | None = None
        self._lock = Lock()
        self.is_transformer = transformer

    @property
    def loaded(self) -> Backbone:
        """The backbone itself."""
        if self._loaded is None:
            with self._lock:
                if self._loaded is None:
                    self._loaded = self._load()
        return self._loaded

    @property
    def dimension(self) -> int:
        """Length of an embedding."""
        return self.loaded.dimension

    def encode(
        self, texts: Sequence[str], state: EncoderState | None = None
    ) -> NDArray[np.float32]:
        """Embed texts; see ``Backbone``."""
        # An app's own backbone need not have the argument.
        return self.loaded.encode(texts) if state is None else self.loaded.encode(texts, state)


class AdaptedBackbone:
    """A backbone with an adapter or a prompt; tasks share the backbone's one session.

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
        """The backbone without its state."""
        return self._backbone


def plain_of(backbone: Backbone) -> Backbone:
    """A backbone without its adapter or prompt, where it has one."""
    return backbone.plain if isinstance(backbone, AdaptedBackbone) else backbone
