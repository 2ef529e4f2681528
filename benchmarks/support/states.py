"""Adapters and prompts of small random weights."""

from __future__ import annotations

import numpy as np

import fala
from fala.backbones import OnnxEncoder
from fala.backbones.state import EncoderState


def encoder_of(bundle: fala.Bundle) -> OnnxEncoder:
    """The encoder of a bundle whose graph has optional inputs."""
    encoder = bundle.backbone()
    if not isinstance(encoder, OnnxEncoder) or not encoder.optional_inputs:
        raise fala.DataError(f"{bundle.path}: no optional inputs; export it with --adapters")
    return encoder


def random_state(encoder: OnnxEncoder, kind: str, length: int, seed: int) -> EncoderState:
    """An adapter (``adapter.``) or a prompt (``past_key_values.``) for a graph's optional inputs.

    Args:
        encoder: The graph's encoder.
        kind: The prefix of the inputs' names.
        length: The adapter's size, or the prompt's length.
        seed: The seed of the weights.
    """
    draw, inputs = np.random.default_rng(seed), {}
    for name, shape in encoder.optional_inputs.items():
        if name.startswith(kind):
            sizes = [length if size is None else size for size in shape]
            numbers = 0.02 * draw.normal(size=sizes) + name.endswith("norm.weight")
            inputs[name] = numbers.astype(np.float32)
    return EncoderState.of(inputs)
