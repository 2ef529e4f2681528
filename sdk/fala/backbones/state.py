"""What is fed to a backbone's optional inputs: a task's adapter, a writer's prompt."""

from __future__ import annotations

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
