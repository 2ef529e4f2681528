"""What a training asks of its examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Batches(Protocol):
    """Examples in batches: the same at every call, so that a training can be continued."""

    def __len__(self) -> int:
        """Batches an epoch."""

    def batch(self, epoch: int, position: int) -> Mapping[str, Tensor]:
        """The arguments of the module's ``forward``.

        Args:
            epoch: Counted from 0.
            position: In the epoch.
        """
