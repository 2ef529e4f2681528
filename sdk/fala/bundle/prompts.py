"""Prompts: keys and values that a release's backbone may read before a text.

A release may have writers' prompts. Or it was trained with hard prompts, which are a writer's
texts: then the device compiles the user's texts to a prompt.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.audit.limits import STATE
from fala.backbones.state import EncoderState
from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes, read_array
from fala.bundle.manifest import Manifest
from fala.errors import BundleFormatError, DataError, DimensionError, counted

_AXES = 6
_PARTS = ("key", "value")
#: The most tokens of a hard prompt that a device compiles.
MOST_COMPILED: int = STATE.prefix


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
        manifest: The release's manifest.

    Returns:
        Shape (K, layers, 2, heads, length, head_dimension), read-only.

    Raises:
        BundleFormatError: Of another type or shape, more or longer than any real ones, or a
            number is not finite; or the backbone reads no prompt.
        DimensionError: The heads' widths do not add up to the backbone's dimension.
    """
    prompts = read_array(data, most=_AXES, name=layout.PROMPT_PREFIXES)
    if manifest.kind in {layout.WORD_VECTORS, layout.EXTERNAL}:
        raise BundleFormatError(f"prompts in a bundle of kind {manifest.kind}, which reads none")
    if prompts.dtype != np.float16 or prompts.ndim != _AXES or prompts.shape[2] != 2:
        raise BundleFormatError(
            "prompts are float16 of shape (K, layers, 2, heads, length, head dimension), not "
            f"{prompts.dtype} of shape {prompts.shape}"
        )
    count, layers, _, heads, length, width = prompts.shape
    if not 1 <= count <= layout.MAX_PROMPTS or not 1 <= length <= layout.MAX_PROMPT_LENGTH:
        raise BundleFormatError(
            f"{counted(count, 'prompt')} of length {length}; a release has 1 to "
            f"{layout.MAX_PROMPTS}, of length 1 to {layout.MAX_PROMPT_LENGTH}"
        )
    if not layers or heads * width != manifest.dimension:
        raise DimensionError(
            f"prompts for {counted(layers, 'layer')} of {counted(heads, 'head')} of "
            f"{counted(width, 'number')}; the backbone's embeddings have {manifest.dimension}"
        )
    if not np.isfinite(prompts).all():
        raise BundleFormatError("a prompt of numbers that are not finite")
    return prompts


def prompt_state(prompt: NDArray[np.floating]) -> EncoderState:
    """The keys and values of a prompt, as inputs of a backbone.

    Args:
        prompt: Shape (layers, 2, heads, length, head_dimension).

    Raises:
        BundleFormatError: It is too long, or a number is not finite.
    """
    return EncoderState.of(
        {
            f"past_key_values.{layer}.{part}": np.array(numbers[None], np.float32)
            for layer, both in enumerate(prompt)
            for part, numbers in zip(_PARTS, both, strict=True)
        }
    )


def hard_prompt_length(manifest: Manifest) -> int:
    """Tokens of the hard prompts that a release was trained with; 0 if it was not.

    Such a release's backbone compiles a text to keys and values (``OnnxEncoder.context``).
    """
    settings = manifest.details.get(layout.HARD_PROMPT)
    length = settings.get("tokens") if isinstance(settings, dict) else None
    return length if type(length) is int and 0 < length <= MOST_COMPILED else 0


def compiled_bytes(state: EncoderState) -> bytes:
    """The stored form of the keys and values that a user's texts were compiled to, in float16.

    Args:
        state: The keys and values, from the backbone.

    Raises:
        DataError: A number does not fit float16.
    """
    layers = len(state.inputs) // len(_PARTS)
    numbers = [
        [state.inputs[f"past_key_values.{layer}.{part}"][0] for part in _PARTS]
        for layer in range(layers)
    ]
    with np.errstate(over="ignore"):
        half = np.array(numbers).astype("<f2")
    if not np.isfinite(half).all():
        raise DataError("a key or value of the texts does not fit float16")
    return array_bytes(half)


def compiled(data: bytes) -> EncoderState:
    """A prompt of a user's texts, as inputs of a backbone.

    Args:
        data: The file; see ``compiled_bytes``.

    Raises:
        DataError: It is damaged.
    """
    try:
        prompt = read_array(data, most=_AXES)
        if prompt.dtype != np.float16 or prompt.ndim != _AXES - 1 or prompt.shape[1] != len(_PARTS):
            raise BundleFormatError(f"{prompt.dtype} of shape {prompt.shape}")
        inputs = prompt_state(prompt).inputs
    except BundleFormatError as error:
        raise DataError(f"a prompt of texts that is damaged: {error}") from error
    # The digest of the file is the same on another machine.
    return EncoderState(inputs, hashlib.sha256(b"texts\n" + data).hexdigest())
