"""All texts' embeddings, which a run's work folder keeps."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from fala import Backbone, Bundle
from fala.release import tokenizer_inputs
from fala_sim.engine.inputs import here
from fala_sim.engine.task import Say
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


class Mapped(Mapping[str, Vectors]):
    """Embeddings (d,) by text, of a file of which only what is asked for is read.

    Attributes:
        path: Of the array, (n, d); the driver's.
    """

    def __init__(self, path: Path, texts: Sequence[str]) -> None:
        """Nothing is read yet.

        Args:
            path: Of the array.
            texts: n of them.
        """
        self.path, self._texts = path, list(texts)
        self._rows: dict[str, int] | None = None
        self._vectors: Vectors | None = None

    def __getitem__(self, text: str) -> Vectors:
        if self._rows is None or self._vectors is None:
            self._rows = {text: row for row, text in enumerate(self._texts)}
            self._vectors = np.asarray(np.load(here(self.path), mmap_mode="r"))
        vector: Vectors = self._vectors[self._rows[text]]
        return vector

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __reduce__(self) -> tuple[type[Mapped], tuple[Path, list[str]]]:
        return Mapped, (self.path, self._texts)


def keep(embeddings: Mapping[str, Vectors], work: Path) -> Mapped:
    """Embeddings as jobs get them, in a file of the work folder that is named by its content."""
    vectors = np.stack(list(embeddings.values()))
    path = work / f"vectors-{hashlib.sha256(vectors.tobytes()).hexdigest()[:16]}.npy"
    if not path.is_file():
        temporary = path.with_name(f"{path.stem}.{os.getpid()}.npy")
        np.save(temporary, vectors)
        temporary.replace(path)
    return Mapped(path, list(embeddings))


def _lengths(bundle: Bundle, texts: Sequence[str]) -> list[int]:
    if TOKENIZER not in bundle.manifest.files:
        return [0] * len(texts)  # word vectors: no forward pass, whatever the length
    tokenizer = Tokenizer.from_str(bundle.read(TOKENIZER).decode("utf-8"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(bundle.manifest.max_length or 512)
    return [len(encoded.ids) for encoded in tokenizer.encode_batch(tokenizer_inputs(texts))]
