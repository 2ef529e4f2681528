"""The public text that a bridge is learned on, and its embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fala import Backbone, DataError, ExportError, RowError
from fala.vendor import Vectors, read_rows, unique_texts
from fala_export.distillation.texts import read_lines
from fala_export.progress import progress

_CHUNK = 512  # texts between two steps of a progress bar


def read_documents(path: Path) -> list[str]:
    """Read distinct documents.

    Args:
        path: UTF-8 text, plain or ``.gz``, a document a line; or ``.jsonl`` with rows of
            ``fala-replace --data``, of which the public ones are read.

    Raises:
        ExportError: The file cannot be read, or has no text.
        DataError: A row of it cannot be used; names its line.
    """
    if path.suffix == ".jsonl":
        return _public_texts(path)
    if lines := read_lines(path):
        return list(dict.fromkeys(lines))
    raise ExportError(f"{path}: no text in it; a file of texts has one document a line")


def _public_texts(path: Path) -> list[str]:
    try:
        with path.open("rb") as stream:
            rows = read_rows(stream)
    except OSError as error:
        raise ExportError(f"{path}: cannot be read as text: {error.strerror or error}") from error
    except RowError as error:
        raise DataError(f"{path}: {error}") from error
    if texts := unique_texts(row.example for row in rows if row.split == "public"):
        return texts
    raise ExportError(f'{path}: no row of split "public"; a bridge is learned on no other')


def embed(backbone: Backbone, texts: Sequence[str], label: str) -> Vectors:
    """Embed n texts with a progress bar; shape (n, dimension)."""
    embeddings = np.empty((len(texts), backbone.dimension), dtype=np.float32)
    with progress(label, len(texts)) as bar:
        for start in range(0, len(texts), _CHUNK):
            chunk = texts[start : start + _CHUNK]
            embeddings[start : start + len(chunk)] = backbone.encode(chunk)
            bar.update(len(chunk))
    return embeddings
