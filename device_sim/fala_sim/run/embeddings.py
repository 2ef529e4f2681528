"""All texts' embeddings, which a run's work folder keeps."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from fala import Backbone, Bundle
from fala.vendor import tokenizer_inputs
from fala_sim.run.vendor import Say
from fala_sim.situation import Vectors

TOKENIZER = "backbone/tokenizer.json"
_CHUNK = 256


def embed(
    bundle: Bundle, name: str, texts: Sequence[str], work: Path, say: Say
) -> tuple[dict[str, Vectors], dict[str, int]]:
    """Embeddings and lengths of texts, from the work folder where they are known.

    Args:
        bundle: Embeds them.
        name: The backbone's, for progress.
        texts: Distinct ones.
        work: The run's work folder.
        say: Told of progress.

    Returns:
        Embeddings (d,), and lengths in tokens, by text.
    """
    place = work / f"embeddings-{bundle.backbone_digest[:16]}.npz"
    known: dict[str, Vectors] = {}
    tokens: dict[str, int] = {}
    if place.is_file():
        with np.load(place) as kept:
            names = json.loads(bytes(kept["texts"]).decode())
            known = dict(zip(names, kept["vectors"], strict=True))
            tokens = dict(zip(names, kept["tokens"].tolist(), strict=True))
    missing = [text for text in texts if text not in known]
    if missing:
        backbone: Backbone = bundle.backbone()
        for start in range(0, len(missing), _CHUNK):
            part = missing[start : start + _CHUNK]
            say(f"{name}: {start} of {len(missing)} texts")
            known.update(zip(part, backbone.encode(part), strict=True))
        tokens.update(zip(missing, _lengths(bundle, missing), strict=True))
        temporary = place.with_name(f"{place.stem}.{os.getpid()}.npz")
        np.savez(
            temporary,
            texts=np.frombuffer(json.dumps(list(known)).encode(), dtype=np.uint8),
            vectors=np.stack(list(known.values())),
            tokens=np.array([tokens[text] for text in known]),
        )
        temporary.replace(place)
    return {text: known[text] for text in texts}, {text: tokens[text] for text in texts}


def _lengths(bundle: Bundle, texts: Sequence[str]) -> list[int]:
    if TOKENIZER not in bundle.manifest.files:
        return [0] * len(texts)  # word vectors: no forward pass, whatever the length
    tokenizer = Tokenizer.from_str(bundle.read(TOKENIZER).decode("utf-8"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(bundle.manifest.max_length or 512)
    return [len(encoded.ids) for encoded in tokenizer.encode_batch(tokenizer_inputs(texts))]
