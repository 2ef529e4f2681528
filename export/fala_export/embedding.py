"""Embed many texts by a backbone, and keep the embeddings for the steps that follow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from fala import Bundle
from fala.backbones import Backbone
from fala.cli import progress
from fala.model.heads import Vectors
from fala_export.checks import check_room
from fala_export.errors import ExportError
from fala_export.writing import writing

_CHUNK = 256  # texts between two updates of the progress bar
_KEY = 16  # bytes of a text's digest


def open_earlier(path: Path) -> Bundle:
    """Open an earlier release, whose backbone embeds texts here.

    Raises:
        BundleError: It cannot be trusted.
        ExportError: It is for the app's own encoder.
    """
    bundle = Bundle.open(path)
    if bundle.external:
        raise ExportError(
            f"{path}: is for the app's own encoder {bundle.encoder}, which no command can run; "
            "leave it out, and add a bridge by fala_export.fit_bridge and fala_export.add_bridge"
        )
    return bundle


def embed(backbone: Backbone, texts: Sequence[str], label: str) -> Vectors:
    """Embed n texts, with a progress bar; shape (n, dimension)."""
    embeddings = np.empty((len(texts), backbone.dimension), dtype=np.float32)
    for positions, vectors in _chunks(backbone, texts, label):
        embeddings[positions] = vectors
    return embeddings


def _chunks(
    backbone: Backbone, texts: Sequence[str], label: str
) -> Iterator[tuple[list[int], Vectors]]:
    """Positions of some texts and their embeddings; texts of similar length need little padding."""
    order = sorted(range(len(texts)), key=lambda position: -len(texts[position]))
    with progress(label, sum(map(len, texts))) as bar:
        for start in range(0, len(order), _CHUNK):
            positions = order[start : start + _CHUNK]
            chunk = [texts[position] for position in positions]
            yield positions, backbone.encode(chunk)
            bar.update(sum(map(len, chunk)))


class Embedder:
    """Embeds texts, and keeps the embeddings by digest of backbone and text.

    The folder has a file for each backbone, to which entries are appended: a text's digest, its
    embedding, and a checksum of both. A killed process leaves whole entries, and perhaps a part of
    one, which is cut off. A text with a damaged entry is encoded again.

    Args:
        folder: Folder of stored embeddings; None stores none.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def embed(self, backbone: Backbone, digest: str, texts: Sequence[str], label: str) -> Vectors:
        """Embed n texts, of which the pending ones are encoded; shape (n, dimension).

        Args:
            backbone: The backbone.
            digest: Digest of everything that its embeddings depend on.
            texts: The texts.
            label: Title of the progress bar.

        Raises:
            ExportError: The folder cannot be written.
        """
        if self._folder is None:
            return embed(backbone, texts, label)
        path, pending = self._path(digest), self.pending(backbone.dimension, digest, texts)
        if pending:
            keys = [_key(text) for text in pending]
            check_room(len(pending) * _entry(backbone.dimension).itemsize, self._folder)
            with writing(path):
                self._folder.mkdir(parents=True, exist_ok=True)
                with path.open("ab") as stream:
                    size = _entry(backbone.dimension).itemsize
                    stream.truncate(stream.tell() // size * size)
                    for positions, vectors in _chunks(backbone, pending, label):
                        entries = np.empty(len(positions), _entry(backbone.dimension))
                        entries["key"] = [keys[position] for position in positions]
                        entries["embedding"] = vectors
                        entries["checksum"] = _checksums(entries)
                        stream.write(entries.tobytes())
        entries = self._entries(backbone.dimension, digest)
        row = {key: position for position, key in enumerate(entries["key"].tolist())}
        return np.ascontiguousarray(entries["embedding"][[row[_key(text)] for text in texts]])

    def pending(self, dimension: int, digest: str, texts: Sequence[str]) -> list[str]:
        """The distinct texts that a backbone has not encoded yet.

        Args:
            dimension: Length of its embeddings.
            digest: See ``embed``.
            texts: The texts.
        """
        encoded = set(self._entries(dimension, digest)["key"].tolist())
        return [text for text in dict.fromkeys(texts) if _key(text) not in encoded]

    def _entries(self, dimension: int, digest: str) -> NDArray[np.void]:
        """The whole, undamaged entries of a backbone."""
        kind, path = _entry(dimension), self._path(digest)
        if self._folder is None or not path.is_file():
            return np.empty(0, kind)
        entries = np.fromfile(path, kind, count=path.stat().st_size // kind.itemsize)
        return entries[entries["checksum"] == _checksums(entries)]

    def _path(self, digest: str) -> Path:
        return (self._folder or Path()) / f"{digest}.embeddings"


def _entry(dimension: int) -> np.dtype[np.void]:
    fields = [("key", f"V{_KEY}"), ("checksum", "<u4"), ("embedding", "<f4", (dimension,))]
    return np.dtype(fields)


def _checksums(entries: NDArray[np.void]) -> NDArray[np.uint32]:
    """The checksums of entries' keys and embeddings."""
    pairs = zip(entries["key"], entries["embedding"], strict=True)
    sums = [crc32(vector.tobytes(), crc32(key.tobytes())) for key, vector in pairs]
    return np.array(sums, dtype=np.uint32)


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=_KEY).digest()
