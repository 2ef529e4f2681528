"""A backbone that is loaded when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from fala.backbones.protocol import Backbone
from fala.backbones.state import EncoderState


class LazyBackbone:
    """Loads a backbone once: looking at a device must not cost a session.

    Args:
        load: Loads it; what it raises is raised by the first ``encode``, and it is asked again.
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
        # Most backbones know no states, and need not.
        return self.loaded.encode(texts) if state is None else self.loaded.encode(texts, state)
