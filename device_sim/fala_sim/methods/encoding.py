"""The new backbone as methods get it: run for real if cost is measured, otherwise cached."""

from __future__ import annotations

from collections.abc import Sequence

from fala import Bundle
from fala.backbones import Backbone
from fala.model.heads import Vectors
from fala_sim.prepare.measured import MeasuredRelease
from fala_sim.records.meter import Meter


class DeviceEncoder:
    """Loads the release and runs it as a user's device would, once per text.

    Args:
        release: The new release.
    """

    def __init__(self, release: MeasuredRelease) -> None:
        self._release = release
        self._backbone: Backbone | None = None
        self._embeddings: dict[str, Vectors] = {}

    def __call__(self, texts: Sequence[str], meter: Meter) -> dict[str, Vectors]:
        """Return embeddings by text; new texts are counted and timed."""
        if self._backbone is None:
            with meter.stage("load"):
                self._backbone = Bundle.open(self._release.path).backbone()
        missing = [text for text in dict.fromkeys(texts) if text not in self._embeddings]
        with meter.stage("forward") as stage:
            if missing:
                vectors = self._backbone.encode(missing)
                self._embeddings.update(zip(missing, vectors, strict=True))
            stage.forward_passes += len(missing)
            stage.forward_flops += self._release.forward_flops(missing)
        return {text: self._embeddings[text] for text in texts}


class KnownEncoder:
    """Returns cached embeddings; it counts forward passes, but takes no time.

    Args:
        release: The new release.
    """

    def __init__(self, release: MeasuredRelease) -> None:
        self._release = release

    def __call__(self, texts: Sequence[str], meter: Meter) -> dict[str, Vectors]:
        """Return embeddings by text."""
        with meter.stage("forward") as stage:
            stage.forward_passes += len(set(texts))
        return {text: self._release.embeddings[text] for text in texts}
