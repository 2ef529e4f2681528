"""Adapters of small random weights."""

from __future__ import annotations

import numpy as np

import fala
from fala.backbones import AdapterWeights, OnnxEncoder


def encoder_of(bundle: fala.Bundle) -> OnnxEncoder:
    """The encoder of a bundle whose graph has optional inputs."""
    encoder = bundle.backbone()
    if not isinstance(encoder, OnnxEncoder) or not encoder.optional_inputs:
        raise fala.DataError(f"{bundle.path}: no optional inputs; export it with --adapters")
    return encoder


def random_adapter(encoder: OnnxEncoder, size: int, seed: int) -> AdapterWeights:
    """An adapter for a graph's optional inputs.

    Args:
        encoder: The graph's encoder.
        size: The adapter's size.
        seed: The seed of the weights.
    """
    draw, inputs = np.random.default_rng(seed), {}
    for name, shape in encoder.optional_inputs.items():
        lengths = [size if length is None else length for length in shape]
        numbers = 0.02 * draw.normal(size=lengths) + name.endswith("norm.weight")
        inputs[name] = numbers.astype(np.float32)
    return AdapterWeights(inputs)
