"""What a training asks of its examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Batches(Protocol):
    """Examples in batches: the same at every call, so that a training can be continued."""

    def __len__(self) -> int:
        """Batches an epoch."""

    def batch(self, epoch: int, position: int) -> Mapping[str, Any]:
        """The arguments of the module's ``forward``: tensors, or mappings of them.

        Args:
            epoch: Counted from 0.
            position: In the epoch.
        """
