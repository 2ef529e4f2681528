"""A linear map from an earlier backbone's embeddings to this one's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fala.base.errors import BundleFormatError, counted
from fala.base.products import product
from fala.model.heads import Vectors
from fala.model.losses import check_arrays


@dataclass(frozen=True, eq=False)
class Bridge:
    """The map that the vendor learned on public text: new embedding = old @ matrix + offset.

    With it a device estimates the new embeddings of all encoded texts before a forward pass.

    Attributes:
        source: Digest of the earlier backbone; see ``Bundle.backbone_digest``.
        matrix: Shape (d_old, d_new).
        offset: Shape (d_new,).
        variance: Variance of each coordinate's residual on held-out text, (d_new,).

    Raises:
        BundleFormatError: If the shapes do not fit each other, a number is not finite, or a
            variance is negative.
    """

    source: str
    matrix: Vectors
    offset: Vectors
    variance: Vectors

    def __post_init__(self) -> None:
        check_arrays(matrix=self.matrix, offset=self.offset, variance=self.variance)
        if self.matrix.ndim != 2 or not (
            self.offset.shape == self.variance.shape == self.matrix.shape[1:]
        ):
            raise BundleFormatError(
                f"a bridge's matrix {self.matrix.shape}, offset {self.offset.shape} and variance "
                f"{self.variance.shape} do not fit each other"
            )
        parts = (self.matrix, self.offset, self.variance)
        if not all(np.isfinite(part).all() for part in parts) or (self.variance < 0).any():
            raise BundleFormatError(
                "a bridge of numbers that are not finite, or with a negative variance"
            )

    def map(self, embeddings: Vectors) -> Vectors:
        """Return estimates of new embeddings, (n, d_new), from old embeddings, (n, d_old).

        Raises:
            BundleFormatError: If the embeddings are not of the old backbone's dimension.
        """
        self.check(embeddings)
        return np.asarray(product(embeddings, self.matrix) + self.offset, dtype=np.float32)

    def check(self, embeddings: Vectors) -> None:
        """Raise BundleFormatError if embeddings are not of the old backbone's dimension."""
        if embeddings.ndim != 2 or embeddings.shape[1] != len(self.matrix):
            raise BundleFormatError(
                f"embeddings of shape (n, {len(self.matrix)}) expected, not {embeddings.shape}"
            )

    def then(self, following: Bridge) -> Bridge:
        """Return the composition of this bridge with another that starts at its target.

        This bridge's residual passes through the other one, and the two residuals are assumed to be
        independent.

        Raises:
            BundleFormatError: If the other bridge does not start where this one ends.
        """
        if len(following.matrix) != len(self.offset):
            raise BundleFormatError(
                f"a bridge from {counted(len(following.matrix), 'dimension')} cannot follow one to "
                f"{len(self.offset)}"
            )
        return Bridge(
            self.source,
            product(self.matrix, following.matrix),
            following.map(self.offset[None])[0],
            following.variance + self.variance @ following.matrix**2,
        )


def reachable(
    bridges: Mapping[str, Bridge], earlier: Mapping[str, Bridge], active: str
) -> list[Bridge]:
    """Return the bridges to a new backbone, including those through the active one.

    Args:
        bridges: The new bundle's bridges, by source.
        earlier: The active bundle's bridges, by source.
        active: The digest of the active backbone.

    Returns:
        Bridges of distinct sources; the bridge with the largest residuals comes first.
    """
    reached = dict(bridges)
    if active in bridges:
        for source, bridge in earlier.items():
            reached.setdefault(source, bridge.then(bridges[active]))
    return sorted(reached.values(), key=lambda bridge: -float(bridge.variance.sum()))
