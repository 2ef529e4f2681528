"""Compare an exported graph with its model: parity of embeddings and logits, and speed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto
from onnxruntime import InferenceSession

from fala_export.graph.runtime import session

_ROUNDS = 7
_SECONDS = 20.0  # Seconds after which no further round starts.


def compare_embeddings(
    exported: NDArray[np.float32], reference: NDArray[np.float32]
) -> dict[str, Any]:
    """Compare embeddings text by text.

    Args:
        exported: Embeddings from the bundle's files, shape (n, dim).
        reference: Embeddings from the model in float32, shape (n, dim).

    Returns:
        The number of texts, and the mean and the worst cosine.
    """
    products = (exported * reference).sum(axis=1, dtype=np.float64)
    lengths = np.linalg.norm(exported, axis=1) * np.linalg.norm(reference, axis=1)
    cosines = products / np.maximum(lengths, 1e-12)
    return {
        "texts": len(cosines),
        "mean_cosine": round(float(cosines.mean()), 5),
        "worst_cosine": round(float(cosines.min()), 5),
    }


def speed(
    float_model: ModelProto,
    model: ModelProto | bytes,
    passes: Sequence[Mapping[str, NDArray[np.int64]]],
) -> dict[str, float]:
    """Time a model and its float32 version alternately, on one thread.

    Args:
        float_model: The ONNX graph in float32.
        model: The same graph in another precision, or its serialized file.
        passes: The inputs of the forward passes; each pass is one text or a batch.

    Returns:
        The ``ratio``, which is float32's time divided by the model's, and the milliseconds per text
        of both. Each pass counts with its fastest round, and the ratio is the median over passes.
    """
    runners = [session(part, threads=1) for part in (float_model, model)]
    rounds: list[list[list[float]]] = []
    start = time.monotonic()
    # The first round warms up. The two models alternate at each pass, so that a pause of the
    # machine affects one pass of one round, which changes neither the fastest round nor the median.
    while len(rounds) < 2 or (len(rounds) <= _ROUNDS and time.monotonic() - start < _SECONDS):
        rounds.append([[_seconds(runner, feeds) for runner in runners] for feeds in passes])
    fastest = np.array(rounds[1:]).min(axis=0)
    texts = sum(len(feeds["input_ids"]) for feeds in passes)
    each = 1000 * fastest.sum(axis=0) / texts
    return {
        "ratio": round(float(np.median(fastest[:, 0] / fastest[:, 1])), 2),
        "fp32_milliseconds": round(float(each[0]), 3),
        "milliseconds": round(float(each[1]), 3),
    }


def _seconds(runner: InferenceSession, feeds: Mapping[str, NDArray[np.int64]]) -> float:
    start = time.perf_counter()
    runner.run(None, feeds)
    return time.perf_counter() - start
