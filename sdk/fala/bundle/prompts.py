"""Writers' prompts in a release: keys and values that its backbone may read before a text."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.backbones.state import EncoderState
from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes, read_array
from fala.bundle.manifest import Manifest
from fala.errors import BundleFormatError, DataError, DimensionError

_AXES = 6
_PARTS = ("key", "value")
#: How far the weights of a mixture may be from a sum of 1.
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Mixture:
    """A user's prompt, mixed from a release's.

    Attributes:
        weights: One for each of the K prompts; 0 or more, of sum 1.
        state: The mixed prompt, as a backbone takes it.
    """

    weights: tuple[float, ...]
    state: EncoderState


def prompt_bytes(prompts: NDArray[Any]) -> bytes:
    """The file of prompts.

    Args:
        prompts: Shape (K, layers, 2, heads, length, head_dimension), keys before values; the first
            is the unknown writer's.

    Raises:
        BundleFormatError: A number does not fit float16.
    """
    with np.errstate(over="ignore"):
        return array_bytes(np.asarray(prompts).astype(np.float16))


def read_prompts(data: bytes, manifest: Manifest) -> NDArray[np.float16]:
    """Read and check the prompts of a release.

    Args:
        data: The file.
        manifest: The release's.

    Returns:
        Shape (K, layers, 2, heads, length, head_dimension), read-only.

    Raises:
        BundleFormatError: Of another type or shape, more or longer than any real ones, or a
            number is not finite; or the backbone reads no prompt.
        DimensionError: The heads' numbers are not as many as the backbone's.
    """
    prompts = read_array(data, most=_AXES)
    if manifest.kind == layout.WORD_VECTORS:
        raise BundleFormatError("prompts beside word vectors, which read none")
    if prompts.dtype != np.float16 or prompts.ndim != _AXES or prompts.shape[2] != 2:
        raise BundleFormatError(
            "prompts are float16 of shape (K, layers, 2, heads, length, head dimension), not "
            f"{prompts.dtype} of shape {prompts.shape}"
        )
    count, layers, _, heads, length, width = prompts.shape
    if not 1 <= count <= layout.MAX_PROMPTS or not 1 <= length <= layout.MAX_PROMPT_LENGTH:
        raise BundleFormatError(
            f"{count} prompts of length {length}; a release has 1 to {layout.MAX_PROMPTS}, of "
            f"length 1 to {layout.MAX_PROMPT_LENGTH}"
        )
    if not layers or heads * width != manifest.dimension:
        raise DimensionError(
            f"prompts for {layers} layers of {heads} heads of {width} numbers; the backbone's "
            f"embeddings have {manifest.dimension}"
        )
    if not np.isfinite(prompts).all():
        raise BundleFormatError("a prompt of numbers that are not finite")
    return prompts


def prompt_state(prompt: NDArray[np.floating]) -> EncoderState:
    """A prompt as a backbone takes it: one of a release's, or a mixture of several.

    Args:
        prompt: Shape (layers, 2, heads, length, head_dimension).

    Raises:
        BundleFormatError: It is longer than any, or a number is not finite.
    """
    return EncoderState.of(
        {
            f"past_key_values.{layer}.{part}": np.array(numbers[None], np.float32)
            for layer, both in enumerate(prompt)
            for part, numbers in zip(_PARTS, both, strict=True)
        }
    )


def mixed(prompts: NDArray[np.float16], weights: Sequence[float]) -> Mixture:
    """Mix a release's prompts: the sum of w_k P_k.

    Args:
        prompts: Shape (K, layers, 2, heads, length, head_dimension).
        weights: The K weights.

    Raises:
        DataError: They are not K, not finite or below 0, or their sum is not 1.
    """
    given = tuple(float(weight) for weight in weights)
    if len(given) != len(prompts):
        raise DataError(f"{len(given)} weights for {len(prompts)} prompts")
    check_weights(given)
    total = np.zeros(prompts.shape[1:], np.float64)
    for weight, prompt in zip(given, prompts, strict=True):
        total += weight * prompt.astype(np.float64)
    # Of what was mixed, not of the sum: that another machine may round otherwise.
    digest = hashlib.sha256(f"mixed {prompts.shape} {given}\n".encode())
    digest.update(prompts.astype("<f2").tobytes())
    return Mixture(given, EncoderState(prompt_state(total).inputs, digest.hexdigest()))


def check_weights(weights: Sequence[float]) -> None:
    """Check the weights of a mixture of prompts.

    Raises:
        DataError: There are none or too many, one is not finite or below 0, or their sum is not 1.
    """
    if not 1 <= len(weights) <= layout.MAX_PROMPTS:
        raise DataError(f"{len(weights)} weights of prompts; 1 to {layout.MAX_PROMPTS} are mixed")
    if not all(math.isfinite(weight) and weight >= 0 for weight in weights):
        raise DataError("a weight of a prompt is not finite, or below 0")
    if abs(math.fsum(weights) - 1) > _ROUNDING:
        raise DataError(f"the weights of prompts have the sum {math.fsum(weights):.6g}, not 1")
