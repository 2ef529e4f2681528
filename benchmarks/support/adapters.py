"""Adapters of small random weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import fala
from adapter_inputs import random_inputs
from fala.backbones import OnnxEncoder


def encoder_of(bundle: fala.Bundle) -> OnnxEncoder:
    """The encoder of a bundle whose graph has optional inputs."""
    encoder = bundle.backbone()
    if not isinstance(encoder, OnnxEncoder) or not encoder.optional_inputs:
        raise fala.DataError(f"{bundle.path}: no optional inputs; export it with --adapters")
    return encoder


def random_adapter(encoder: OnnxEncoder, size: int, seed: int) -> dict[str, NDArray[np.float32]]:
    """An adapter of a size for a graph's optional inputs."""
    return random_inputs(encoder.optional_inputs, size, seed, scale=0.02)
