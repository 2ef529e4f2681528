"""Embed many texts with a backbone, and keep the embeddings for the following steps."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fala import Bundle
from fala.backbones import Backbone
from fala.cli import progress
from fala.model.heads import Vectors
from fala_export.base.checks import check_room
from fala_export.base.errors import ExportError
from fala_export.embedding.encoding import embed, encoded
from fala_export.embedding.ranks import Ranks
from fala_export.embedding.table import TextKeys, TextPositions, VectorFile, text_key, text_keys

# Number of texts that are held in memory and sorted by length.
_BLOCK = 1 << 16
# Number of entries whose checksums are compared together.
_READ = 1 << 12


def open_earlier(path: Path) -> Bundle:
    """Open an earlier release, whose backbone embeds texts here.

    Raises:
        BundleError: The release cannot be trusted.
        ExportError: The release is for the app's own encoder.
    """
    bundle = Bundle.open(path)
    if bundle.external:
        raise ExportError(
            f"{path}: is for the app's own encoder {bundle.encoder}, which no command can run; "
            "leave it out, and add a bridge with fala_export.fit_bridge and "
            "fala_export.add_bridge"
        )
    return bundle


class Embeddings(Mapping[str, Vectors]):
    """Embeddings (d,) by text, read from a table when they are used; the object can be pickled.

    Attributes:
        table: The table.
        texts: The texts, all of which have an entry; they are only counted and iterated over.
    """

    def __init__(self, table: VectorFile, texts: Collection[str]) -> None:
        self.table, self.texts = table, texts

    @classmethod
    def open(cls, folder: Path, dimension: int, texts: Collection[str]) -> Embeddings:
        """Open the embeddings of a folder that ``write`` wrote.

        Args:
            folder: The folder.
            dimension: Length of an embedding.
            texts: The texts.
        """
        return cls(VectorFile(folder, dimension), texts)

    @classmethod
    def write(cls, folder: Path, texts: Sequence[str], vectors: Vectors) -> Embeddings:
        """Write the embeddings (n, dimension) of n texts into a new folder.

        Raises:
            ExportError: The folder cannot be written.
        """
        table = VectorFile(folder, vectors.shape[1])
        table.add(text_keys(texts), vectors)
        return cls(table, texts)

    @property
    def folder(self) -> Path:
        """The folder of the table."""
        return self.table.folder

    def moved(self, folder: Path) -> Embeddings:
        """Return the same embeddings from a copy of the folder."""
        return self.open(folder, self.table.dimension, self.texts)

    def take(self, texts: Sequence[str]) -> Vectors:
        """Return the embeddings of n texts, read together, shape (n, dimension).

        Raises:
            ExportError: An embedding is damaged.
            KeyError: A text has no embedding.
        """
        rows = self.table.find(text_keys(texts))
        if (rows < 0).any():
            raise KeyError(f"text {int(np.argmax(rows < 0))} has no embedding")
        return _read(self.table, rows)

    def __getitem__(self, text: str) -> Vectors:
        row = self.table.find_one(text_key(text))
        if row < 0:
            raise KeyError("the text has no embedding")
        return _read(self.table, np.array([row]))[0]

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self.table.find_one(text_key(text)) >= 0

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)


def _read(table: VectorFile, rows: TextPositions) -> Vectors:
    """Return the embeddings of some rows.

    Raises:
        ExportError: An embedding is damaged.
    """
    vectors, whole = table.read(rows)
    if not whole.all():
        raise ExportError(
            f"{table.folder}: an embedding is damaged; run the command again, or remove the folder"
        )
    return vectors


class Embedder:
    """An embedder of texts that keeps embeddings by the digests of backbone and text.

    The folder has a ``VectorFile`` for each backbone. A text with a damaged entry is encoded again.
    If ``accelerate launch`` started several processes, each encodes its share.

    Args:
        folder: Folder of the tables; if None, embeddings are not kept.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._tables: dict[str, VectorFile] = {}

    def embed(self, backbone: Backbone, digest: str, texts: Sequence[str], label: str) -> Vectors:
        """Embed n texts, encoding only those that are not stored; shape (n, dimension).

        Args:
            backbone: The backbone.
            digest: Digest of everything that the embeddings depend on.
            texts: The texts.
            label: Title of the progress bar.

        Raises:
            ExportError: The folder cannot be written.
        """
        if self._folder is None:
            return embed(backbone, texts, label)
        table = self._table(backbone.dimension, digest)
        return _read(table, self._add(table, backbone, texts, label))

    def mapping(
        self, backbone: Backbone, digest: str, texts: Collection[str], label: str
    ) -> Embeddings:
        """Embed texts as ``embed`` does, but leave the embeddings on the disk.

        Few texts are in memory at a time. If there is no folder, the embeddings are in a temporary
        folder, which is removed after its last use.
        """
        table = self._table(backbone.dimension, digest)
        self._add(table, backbone, texts, label)
        return Embeddings(table, texts)

    def count_pending(self, dimension: int, digest: str, texts: Collection[str]) -> int:
        """Return how many of some distinct texts a backbone has not encoded yet.

        Args:
            dimension: Length of the backbone's embeddings.
            digest: Digest of everything that the embeddings depend on; see ``embed``.
            texts: The texts.
        """
        table = self._table(dimension, digest)
        return sum(int(_found(table, text_keys(block))[1].sum()) for block in _blocks(texts))

    def _table(self, dimension: int, digest: str) -> VectorFile:
        if self._folder is None:
            table = VectorFile(Path(tempfile.mkdtemp(prefix="fala-embeddings-")), dimension)
            weakref.finalize(table, shutil.rmtree, table.folder, ignore_errors=True)
            return table
        if digest not in self._tables:
            self._tables[digest] = VectorFile(self._folder / digest, dimension)
        return self._tables[digest]

    def _add(
        self, table: VectorFile, backbone: Backbone, texts: Collection[str], label: str
    ) -> TextPositions:
        """Encode the texts that are not stored, and return the rows of all texts, shape (n,)."""
        ranks = Ranks()
        # Without a folder, each process has a table of its own.
        writes = ranks.rank == 0 or self._folder is None
        parts = []
        with progress(label, len(texts)) as bar:
            for block in _blocks(texts):
                keys = text_keys(block)
                rows, is_pending = _found(table, keys)
                # Only one process may choose, because another's choice depends on when it looks.
                pending = ranks.of_first(np.flatnonzero(is_pending))
                distinct = list({block[position]: position for position in pending}.values())
                check_room(len(distinct) * table.entry_bytes, table.folder)
                bar.update(len(block) - len(distinct))
                for chunk, vectors in encoded(backbone, [block[at] for at in distinct]):
                    if writes:
                        table.add(keys[[distinct[at] for at in chunk]], vectors)
                    bar.update(len(chunk))
                ranks.wait()
                is_pending[pending] = True
                rows[is_pending] = table.find(keys[is_pending])
                if (rows < 0).any():
                    raise ExportError(
                        f"{table.folder}: lacks embeddings that another process wrote; processes "
                        "that work together need a folder that all of them can read"
                    )
                parts.append(rows)
        return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    stream = iter(texts)
    while block := list(islice(stream, _BLOCK)):
        yield block


def _found(table: VectorFile, keys: TextKeys) -> tuple[TextPositions, NDArray[np.bool_]]:
    """Return the rows of keys, and which keys have no undamaged entry."""
    rows = table.find(keys)
    is_pending = rows < 0
    present = np.flatnonzero(~is_pending)
    for start in range(0, len(present), _READ):
        part = present[start : start + _READ]
        is_pending[part] = ~table.read(rows[part])[1]
    return rows, is_pending
