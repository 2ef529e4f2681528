"""Store static embeddings as a table that a device reads without any library, in any precision."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers.sentence_transformer import modules
from torch import nn

from fala.backbones import StaticEmbeddings
from fala.bundle.arrays import array_bytes
from fala.bundle.format import SCALES, STATIC_SETTINGS, VECTORS, VOCABULARY
from fala_export.base.errors import ExportError
from fala_export.models.sentence_encoder import Ending
from fala_export.models.wordpiece import NotPlainError
from fala_export.vectors.table import int8_rows

PRECISIONS = ("none", "fp16", "int8")
"""Precisions of a table, from the largest to the smallest."""

_TYPES = {"none": np.float32, "fp16": np.float16}


@dataclass(frozen=True, eq=False)
class StaticTable:
    """A table of tokens' vectors, with the settings for reading a text.

    Attributes:
        vocabulary: The token of each row.
        vectors: The vectors, shape (V, dim), multiplied by the tokens' weights.
        settings: The settings of ``fala.backbones.StaticEmbeddings``.
        max_length: Number of tokens of a text that are read; None for all.
    """

    vocabulary: Sequence[str]
    vectors: NDArray[np.float32]
    settings: Mapping[str, Any]
    max_length: int | None

    def stored(self, precision: str) -> tuple[dict[str, bytes], StaticEmbeddings]:
        """Return the files of a bundle by name, and the backbone that they define.

        Args:
            precision: One of ``PRECISIONS``.

        Raises:
            ExportError: A number is too large for float16, with which devices compare vectors.
        """
        if not (np.abs(self.vectors) <= np.finfo(np.float16).max).all():
            raise ExportError("its table has a number that is too large for float16")
        arrays: dict[str, NDArray[Any]] = {}
        if precision == "int8":
            arrays[VECTORS], arrays[SCALES] = int8_rows(self.vectors)
        else:
            arrays[VECTORS] = self.vectors.astype(_TYPES[precision])
        settings = dict(self.settings)
        files = {name: array_bytes(array) for name, array in arrays.items()}
        files[VOCABULARY] = "".join(f"{token}\n" for token in self.vocabulary).encode()
        files[STATIC_SETTINGS] = json.dumps(settings, ensure_ascii=False, sort_keys=True).encode()
        return files, StaticEmbeddings(
            self.vocabulary, settings, *arrays.values(), max_length=self.max_length
        )


def after_steps(vectors: NDArray[np.float32], end: Ending) -> NDArray[np.float32]:
    """Apply the steps after the mean, except scaling to length 1, to the vectors before it.

    Args:
        vectors: The vectors, shape (V, width).
        end: The steps after the mean.

    Returns:
        The vectors, shape (V, dim).

    Raises:
        NotPlainError: A step cannot be applied before the mean.
    """
    for step in end.steps:
        if not isinstance(step, modules.Dense) or not _is_product(step):
            raise NotPlainError(f"its step {type(step).__name__} cannot be folded into a table")
        vectors = vectors @ step.linear.weight.detach().float().numpy().T
    return np.ascontiguousarray(vectors[:, : end.cut], dtype=np.float32)


def _is_product(step: modules.Dense) -> bool:
    """Return whether a step only multiplies by a matrix."""
    return (
        isinstance(step.activation_function, nn.Identity)
        and step.linear.bias is None
        and not getattr(step, "use_residual", False)
    )
