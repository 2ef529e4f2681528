"""A base's graph with a task's adapter fed to it: what a device will run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fala.vendor import EncoderState, OnnxEncoder, Vectors


class Fed:
    """A backbone that is fed an adapter beside every text; see ``fala.Backbone``.

    Args:
        encoder: The base's backbone, which takes adapters.
        state: The adapter.
    """

    is_transformer = True

    def __init__(self, encoder: OnnxEncoder, state: EncoderState) -> None:
        self._encoder, self._state = encoder, state

    @property
    def dimension(self) -> int:
        """Length of an embedding."""
        return self._encoder.dimension

    def encode(self, texts: Sequence[str], state: EncoderState | None = None) -> Vectors:
        """Embed texts with the adapter; shape (n, dimension)."""
        return self._encoder.encode(texts, self._state)


def takes(encoder: OnnxEncoder, inputs: Mapping[str, Vectors]) -> bool:
    """Whether a graph has inputs for an adapter."""
    return inputs.keys() <= encoder.optional_inputs.keys()
