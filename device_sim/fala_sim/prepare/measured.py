"""A vendor's release, with what the benchmarks know about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fala import Bundle, Device
from fala.model.heads import Head, PersonalModel, Vectors
from fala.text.sparse_rows import SparseRows
from fala_sim.data.users import User, UserExample

LogitArray: TypeAlias = NDArray[np.float64]
#: Embeddings (d,) by text.
EmbeddingByText: TypeAlias = Mapping[str, Vectors]


@dataclass(frozen=True)
class MeasuredRelease:
    """A vendor's release, with the benchmarks' data about it.

    Attributes:
        name: Name of the backbone.
        path: Path of the bundle, with its head.
        head: The vendor's global head.
        embeddings: Cached embeddings (d,) of all the data set's texts, for scoring, for searches
            and for runs that do not measure cost. ``Situation.encode`` has the embeddings that a
            device pays for.
        flops: FLOPs of one forward pass by length in tokens, from the graph's shapes; empty for
            word vectors.
        tokens: Length of every text in tokens, truncated as the backbone does.
    """

    name: str
    path: Path
    head: Head
    embeddings: EmbeddingByText
    flops: Mapping[int, float]
    tokens: Mapping[str, int] = field(default_factory=dict)

    def forward_flops(self, texts: Iterable[str]) -> float:
        """Return the FLOPs of encoding some texts one by one, without padding."""
        if len(self.flops) < 3:
            return 0.0
        # The result is exact, because a transformer's cost is a quadratic function of the length.
        lengths = np.array([self.tokens[text] for text in texts], dtype=np.float64)
        curve = np.polyfit(list(self.flops), list(self.flops.values()), 2)
        return float(np.polyval(curve, lengths).sum())

    def learned(self, user: User) -> PersonalModel:
        """Return the model of a device with this release that has learned a user's train labels."""
        with (
            TemporaryDirectory(prefix="fala-") as folder,
            Device.create(Path(folder) / "device", self.path) as device,
        ):
            if user.train:
                device.learn(user.train, user.train_labels)
            return device.model

    def inputs(self, examples: Sequence[UserExample]) -> Vectors:
        """Return the head's inputs of n examples, shape (n, D)."""
        return self.head.inputs(examples, self.embeddings)

    def ngrams(self, examples: Sequence[UserExample]) -> SparseRows | None:
        """Return the n-grams of n examples, or None if the head has no lexical features."""
        return self.head.ngrams(examples)

    def logits(self, model: PersonalModel, examples: Sequence[UserExample]) -> LogitArray:
        """Return the logits (n, C) of a model on this release's head for n examples."""
        return model.logits(self.inputs(examples), self.ngrams(examples)).astype(np.float64)


def forward_flops_of(bundle: Bundle) -> dict[int, float]:
    """Return the FLOPs of one forward pass by length in tokens, from a bundle's manifest."""
    cost = bundle.manifest.details.get("cost")
    flops = cost.get("flops", {}) if isinstance(cost, dict) else {}
    return {int(length): float(value) for length, value in flops.items()}
