"""Texts per second of a bundle's backbone, and of a bare onnxruntime session on the same model.

Also a device's prediction of one text, by a head with n-grams, beside the encoding of one text.

    python benchmarks/encoding.py
    python benchmarks/encoding.py --bundle release.fala --texts 50 --batch 8 --json
    taskset -c 0 python benchmarks/encoding.py

The peer has onnxruntime's own defaults, except that it has as many threads as this process has
cores. It reads texts sorted by length in batches of one size, tokenized by the same library. The
two take turns and the figures are medians. On a busy machine the clock also counts other programs,
so processor time is reported, too.
The prediction's ratio is of processor time, the median over texts. Texts are the built-in sample's.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from support.documents import BUNDLE, bundle_of, documents_of, write_release
from support.measuring import REPEATS, benchmark, in_turns, median_ratio

import fala


class Bare:
    """A session and a tokenizer, sorted and padded by hand."""

    def __init__(self, bundle: fala.Bundle, batch: int) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        manifest = bundle.manifest
        if manifest.kind != "onnx":
            raise click.UsageError(f"{bundle.path}: not a transformer; give one with --bundle")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.load_model_format", "ONNX")
        if hasattr(os, "sched_getaffinity"):
            options.intra_op_num_threads = len(os.sched_getaffinity(0))
        self._session: Any = onnxruntime.InferenceSession(
            bundle.read("backbone/model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._types = "token_type_ids" in [each.name for each in self._session.get_inputs()]
        self._tokenizer = Tokenizer.from_str(bundle.read("backbone/tokenizer.json").decode())
        self._tokenizer.no_padding()
        if manifest.max_length is not None:
            self._tokenizer.enable_truncation(manifest.max_length)
        self._pad, self._batch = manifest.pad_id, batch

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts."""
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(texts)]
        order = sorted(range(len(ids)), key=lambda at: len(ids[at]))
        parts = []
        for start in range(0, len(order), self._batch):
            rows = [ids[at] for at in order[start : start + self._batch]]
            longest = len(rows[-1])
            tokens = np.array([row + [self._pad] * (longest - len(row)) for row in rows])
            mask = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
            feeds = {"input_ids": tokens, "attention_mask": mask}
            if self._types:
                feeds["token_type_ids"] = np.zeros_like(tokens)
            parts.append(self._session.run(None, feeds)[0])
        embeddings: NDArray[np.float32] = np.empty_like(np.concatenate(parts))
        embeddings[order] = np.concatenate(parts)
        return embeddings


def prediction(
    bundle: fala.Bundle, texts: Sequence[str], labels: Sequence[int]
) -> dict[str, float]:
    """Time a device's prediction of one text, and the encoding of one."""
    encode = bundle.backbone().encode
    with tempfile.TemporaryDirectory() as temporary:
        release = Path(temporary) / "release.fala"
        write_release(release, bundle, list(texts), labels)
        with fala.Device.create(Path(temporary) / "device", release) as device:
            device.learn(texts[::2], labels[::2])
            unseen = texts[1::2]
            first, second = iter(unseen), iter(unseen)
            turns = in_turns(
                {
                    "predict": lambda: device.predict([next(first)]),
                    "encode": lambda: encode([next(second)]),
                },
                len(unseen),
            )
    return {
        "predict_one_milliseconds": 1e3 * turns["predict"].processor_seconds,
        "predict_to_encode_one": median_ratio(
            turns["predict"].processor, turns["encode"].processor
        ),
    }


@benchmark
@BUNDLE
@click.option("--texts", "count", type=click.IntRange(20), default=500, show_default=True)
@click.option("--batch", type=click.IntRange(1), default=32, show_default=True, help="The peer's.")
@REPEATS
def main(name: str, count: int, batch: int, repeats: int, seed: int) -> dict[str, Any]:
    """Time encoding, and a bare session."""
    texts, labels = documents_of(count, seed)
    bundle = bundle_of(name)
    bare = Bare(bundle, batch)
    calls: dict[str, Callable[[Sequence[str]], NDArray[np.float32]]] = {
        "fala": bundle.backbone().encode,
        "bare": bare.encode,
    }
    first = {name: call(texts) for name, call in calls.items()}
    turns = in_turns({name: partial(call, texts) for name, call in calls.items()}, repeats)
    clock = {name: timing.seconds for name, timing in turns.items()}
    processor = {name: timing.processor_seconds for name, timing in turns.items()}
    return {
        "texts_per_second": count / clock["fala"],
        "bare_texts_per_second": count / clock["bare"],
        "ratio": clock["bare"] / clock["fala"],
        "processor_ratio": processor["bare"] / processor["fala"],
        "largest_difference": float(np.abs(first["fala"] - first["bare"]).max()),
        **prediction(bundle, texts, labels),
    }


if __name__ == "__main__":
    main()
