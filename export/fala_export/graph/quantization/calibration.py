"""Gather statistics of the values inside a model, so that few bits are spent where they matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto
from tokenizers import Tokenizer

from fala.cli import progress
from fala_export.base.errors import ExportError
from fala_export.graph.runtime import session
from fala_export.graph.sentences import calibration_texts

_RANDOM = 96  # Number of sequences of random tokens, in addition to the texts.
_LONGEST_RANDOM = 64
_FREQUENT = 1000  # Number of ranks over which random tokens are about equally frequent.
_BATCH = 8
_MOMENT_BYTES = 1 << 30  # Bytes of second moments that are gathered in one pass.


@dataclass
class Statistics:
    """Statistics of a value of width K, over all tokens.

    Attributes:
        peak: Largest absolute value of each column, shape (K,).
        moment: Mean product of each pair of columns, shape (K, K); None if it was not gathered.
    """

    peak: NDArray[np.float32]
    moment: NDArray[np.float32] | None = None


def token_sequences(tokenizer: bytes, max_length: int) -> list[list[int]]:
    """Return token ids to calibrate on: those of texts, and random ones.

    Random tokens cover what a few texts do not: rare pieces in unusual positions. Frequent pieces
    come first in most vocabularies, and are drawn more often.

    Args:
        tokenizer: The ``tokenizers`` library's tokenizer as JSON.
        max_length: Number of tokens of a text that are read.

    Returns:
        Sequences of token ids, including the tokens that the tokenizer adds around a text.

    Raises:
        ExportError: The tokenizer has only special tokens.
    """
    reader = Tokenizer.from_str(tokenizer.decode())
    reader.no_padding()
    reader.enable_truncation(max_length)
    sequences = [encoding.ids for encoding in reader.encode_batch(calibration_texts())]
    markers = reader.encode("").ids
    special = {id for id, token in reader.get_added_tokens_decoder().items() if token.special}
    candidates = np.array(sorted(set(reader.get_vocab(with_added_tokens=True).values()) - special))
    if not len(candidates):
        raise ExportError(
            "the tokenizer has only special tokens, so there are none to calibrate on"
        )
    random = np.random.default_rng(0)
    # The frequency of a piece is about inversely proportional to its rank (Zipf's law).
    log_range = np.log((len(candidates) + _FREQUENT) / _FREQUENT)
    for _ in range(_RANDOM):
        # Short sequences are included, because attention's averages over few tokens are larger than
        # over many.
        length = int(_LONGEST_RANDOM ** random.random())
        length = max(1, min(length, max_length - len(markers)))
        ranks = _FREQUENT * np.expm1(random.random(length) * log_range)
        drawn = candidates[np.minimum(ranks.astype(np.int64), len(candidates) - 1)]
        half = len(markers) // 2
        sequences.append([*markers[:half], *map(int, drawn), *markers[half:]])
    return [sequence for sequence in sequences if sequence]


def observe(
    model: ModelProto,
    widths: Mapping[str, int],
    sequences: Sequence[Sequence[int]],
    *,
    moments: bool,
) -> dict[str, Statistics]:
    """Run a model, and gather statistics of some inner values.

    Args:
        model: A float32 ONNX model from token ids to embeddings.
        widths: Length of the last axis of each inner value to watch, by name.
        sequences: Token ids.
        moments: Whether to gather second moments as well.

    Raises:
        ExportError: A value is not finite.
    """
    statistics: dict[str, Statistics] = {}
    group: list[str] = []
    room = _MOMENT_BYTES
    for name, width in widths.items():
        room -= 4 * width**2 if moments else 0
        if group and room < 0:  # A large model's moments do not fit in memory together.
            statistics |= _observe(model, group, sequences, moments)
            group, room = [], _MOMENT_BYTES - 4 * width**2
        group.append(name)
    return statistics | (_observe(model, group, sequences, moments) if group else {})


def _observe(
    model: ModelProto, names: list[str], sequences: Sequence[Sequence[int]], moments: bool
) -> dict[str, Statistics]:
    runner = session(model, names)
    peaks: dict[str, NDArray[np.float32]] = {}
    sums: dict[str, NDArray[np.float32]] = {}
    tokens: dict[str, int] = {}
    with progress("calibrating", len(sequences)) as bar:
        for ids, mask in _batches(sequences):
            values = runner.run(names, {"input_ids": ids, "attention_mask": mask})
            for name, value in zip(names, values, strict=True):
                per_token = value.shape[:-1] == mask.shape
                rows = value[mask == 1] if per_token else value.reshape(-1, value.shape[-1])
                peak = np.abs(rows).max(axis=0)
                peaks[name] = np.maximum(peaks.get(name, peak), peak)
                if moments:
                    product = rows.T @ rows
                    sums[name] = sums[name] + product if name in sums else product
                    tokens[name] = tokens.get(name, 0) + len(rows)
            bar.update(len(ids))
    if not all(np.isfinite(peak).all() for peak in peaks.values()):
        raise ExportError("the model has NaN or infinity inside, so it cannot be quantized")
    return {
        name: Statistics(
            peaks[name], sums.pop(name) / np.float32(tokens[name]) if moments else None
        )
        for name in names
    }


def _batches(
    sequences: Sequence[Sequence[int]],
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield token ids and masks of sequences of similar length, (at most 8, length) each."""
    ordered = sorted(sequences, key=len)
    for start in range(0, len(ordered), _BATCH):
        batch = ordered[start : start + _BATCH]
        # A masked token may be any token, because nothing attends to it.
        ids = np.full((len(batch), len(batch[-1])), batch[-1][-1], dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, sequence in enumerate(batch):
            ids[row, : len(sequence)] = sequence
            mask[row, : len(sequence)] = 1
        yield ids, mask
