"""The interface of a backbone, and two that wrap another: loaded late, or with an adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fala.backbones.adapter import AdapterWeights
from fala.backbones.onnx_encoder import OnnxEncoder


class Backbone(Protocol):
    """A frozen text encoder."""

    @property
    def dimension(self) -> int:
        """Length of an embedding."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts.

        Args:
            texts: n texts.

        Returns:
            The embeddings, shape (n, dimension).

        Raises:
            DataError: An item is not a text; the error names its position.
            BundleError: The backbone cannot be loaded, or fails on a text.
        """


class LazyBackbone:
    """Loads a backbone at its first use, so that opening a device does not load a model.

    Args:
        load: Loads the backbone. ``encode`` raises its errors, and the next call loads again.
    """

    def __init__(self, load: Callable[[], Backbone]) -> None:
        self._load = load
        self._loaded: Backbone | None = None
        self._lock = RLock()  # the app's own encoder may use the device

    def load(self) -> Backbone:
        """Return the backbone itself, loaded once."""
        if self._loaded is None:
            with self._lock:
                if self._loaded is None:
                    self._loaded = self._load()
        return self._loaded

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see ``Backbone``."""
        return self.load().encode(texts)


class AdaptedBackbone:
    """A transformer with an adapter; tasks share the transformer's one session.

    Args:
        backbone: The transformer.
        adapter: The adapter.
    """

    def __init__(self, backbone: OnnxEncoder, adapter: AdapterWeights) -> None:
        self._backbone, self._adapter = backbone, adapter

    @property
    def dimension(self) -> int:
        """Length of an embedding."""
        return self._backbone.dimension

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see ``Backbone``."""
        return self._backbone.encode(texts, self._adapter)
