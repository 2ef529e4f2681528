"""Store embeddings in a table on disk, memory-mapped, with an index by the digest of a text.

A folder has two files of fixed-size entries, to which entries are only appended: ``vectors``, and
``keys`` with each entry's key and a checksum of both. An entry counts once its key is written,
after its vector. A killed process therefore leaves complete entries, and possibly a partial entry
that is cut off. Writers take turns with a lock, and readers need none.

The index is in memory: the keys' first eight bytes, sorted. It takes 16 bytes per entry, and one
second for ten million entries. An index by SQLite was 5 times slower for adding a million keys, and
60 times for finding them. Arrow has no index.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import unpack
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from fala.model.heads import Vectors
from fala_export.base.errors import ExportError
from fala_export.base.files import writing

#: n keys, structured; see ``text_keys``.
TextKeys: TypeAlias = NDArray[np.void]
#: Rows of a table, shape (n,); -1 for a text without an entry.
TextPositions: TypeAlias = NDArray[np.int64]

_KEY = np.dtype([("first", "<u8"), ("last", "<u8")])
_ENTRY = np.dtype([("key", _KEY), ("checksum", "<u4")])


def text_key(text: str) -> bytes:
    """Return the key of a text, which is its digest."""
    # A text may contain half of a surrogate pair, which UTF-8 cannot encode.
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=_KEY.itemsize).digest()


def text_keys(texts: Iterable[str]) -> TextKeys:
    """Return the keys of texts."""
    return np.frombuffer(b"".join(map(text_key, texts)), _KEY)


class VectorFile:
    """The embeddings of one backbone.

    Args:
        folder: The table's folder, which the first ``add`` creates.
        dimension: Length of an embedding.
    """

    def __init__(self, folder: Path, dimension: int) -> None:
        self.folder, self.dimension = folder, dimension
        self._entries: NDArray[np.void] = np.empty(0, _ENTRY)
        self._last = self._entries["key"]["last"]
        self._vectors: Vectors = np.empty((0, dimension), np.float32)
        # The keys' first halves in increasing order, and their entries' rows.
        self._sorted: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._rows: TextPositions = np.empty(0, np.int64)
        self._is_behind = True  # The index may be behind the entries on disk.
        self._files: tuple[int, ...] = ()  # Identifies the mapped files; see ``_identity``.

    def __reduce__(self) -> tuple[type[VectorFile], tuple[Path, int]]:
        return VectorFile, (self.folder, self.dimension)

    @property
    def entry_bytes(self) -> int:
        """The size of an entry on disk, in bytes."""
        return _ENTRY.itemsize + 4 * self.dimension

    def __len__(self) -> int:
        """Return the number of entries that any process has written so far."""
        self._refresh()
        return len(self._entries)

    def find(self, keys: TextKeys) -> TextPositions:
        """Return the row of each key's newest entry, shape (n,); -1 if it has none."""
        rows = self._indexed(keys)
        if self._is_behind or (rows < 0).any():
            self._refresh()
            rows = self._indexed(keys)
        return rows

    def find_one(self, key: bytes) -> int:
        """Find one key, some times faster than ``find`` with an array of one key."""
        first, last = unpack("<QQ", key)
        row, place = -1, int(self._sorted.searchsorted(np.uint64(first)))
        while place < len(self._sorted) and self._sorted[place] == first:
            candidate = int(self._rows[place])
            if self._last[candidate] == last:
                row = max(row, candidate)
            place += 1
        return int(self.find(np.frombuffer(key, _KEY))[0]) if row < 0 or self._is_behind else row

    def _indexed(self, keys: TextKeys) -> TextPositions:
        # Sorted keys are found ten times faster.
        order = np.argsort(keys["first"])
        first, last = keys["first"][order], keys["last"][order]
        rows = np.full(len(keys), -1, np.int64)
        places = np.searchsorted(self._sorted, first)
        # These keys may be at their place; if several entries have the same first half, the search
        # goes on.
        open_ = np.arange(len(keys))
        while True:
            open_ = open_[places[open_] < len(self._sorted)]
            open_ = open_[self._sorted[places[open_]] == first[open_]]
            if not len(open_):
                break
            candidates = self._rows[places[open_]]
            same = self._last[candidates] == last[open_]
            rows[open_[same]] = np.maximum(rows[open_[same]], candidates[same])
            places[open_] += 1
        result = np.empty_like(rows)
        result[order] = rows
        return result

    def read(self, rows: TextPositions) -> tuple[Vectors, NDArray[np.bool_]]:
        """Read entries in one gather.

        Returns:
            The embeddings, shape (n, dimension), and whether each is undamaged, shape (n,).
        """
        vectors = self._vectors[rows]
        entries = self._entries[rows]
        return vectors, entries["checksum"] == _checksums(entries["key"], vectors)

    def add(self, keys: TextKeys, vectors: Vectors) -> None:
        """Append entries.

        Args:
            keys: The keys of n texts.
            vectors: The embeddings, shape (n, dimension).

        Raises:
            ExportError: The entries cannot be written.
        """
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        entries = np.empty(len(keys), _ENTRY)
        entries["key"], entries["checksum"] = keys, _checksums(keys, vectors)
        self._is_behind = True
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / ".lock"):
                count = self._count()
                self._append("vectors", 4 * self.dimension * count, vectors)
                self._append("keys", _ENTRY.itemsize * count, entries)

    def _append(self, name: str, start: int, rows: NDArray[Any]) -> None:
        """Write at an offset, after which there is only what a killed process left."""
        with (self.folder / name).open("ab") as stream:
            stream.truncate(start)
            stream.write(rows.data)

    def _count(self) -> int:
        """Return the number of complete entries on disk."""
        sizes = {"keys": _ENTRY.itemsize, "vectors": 4 * self.dimension}
        files = {self.folder / name: size for name, size in sizes.items()}
        return min(_size(file) // size for file, size in files.items())

    def _identity(self) -> tuple[int, ...]:
        """Return what distinguishes the files from others of the same names.

        The number of a mapped file is not used again.
        """
        files = [self.folder / name for name in ("keys", "vectors")]
        return tuple(file.stat().st_ino for file in files if file.exists())

    def _refresh(self) -> None:
        """Map and index the entries that were added since the last call."""
        self._is_behind = False
        before = len(self._entries)
        with _reading(self.folder):
            count, files = self._count(), self._identity()
        if count == before and (not count or files == self._files):
            return
        if count < before or files != self._files:  # Another process started the table anew.
            self._sorted, self._rows, before = self._sorted[:0], self._rows[:0], 0
        self._files = files
        with _reading(self.folder):
            self._entries = self._map("keys", _ENTRY, (count,))
            self._vectors = self._map("vectors", np.dtype(np.float32), (count, self.dimension))
        self._last = self._entries["key"]["last"]
        new = self._entries["key"]["first"][before:]
        order = np.argsort(new)
        new, rows = new[order], order
        if before:
            rows += before
            places = np.searchsorted(self._sorted, new)
            new, rows = np.insert(self._sorted, places, new), np.insert(self._rows, places, rows)
        self._sorted, self._rows = new, rows

    def _map(self, name: str, kind: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        # Rows of a plain array are read faster.
        return np.asarray(np.memmap(self.folder / name, kind, "r", shape=shape))


def _size(file: Path) -> int:
    """Return the size of a file, or 0 if it does not exist."""
    try:
        # The file is opened, because a network file system may otherwise answer from its cache.
        with file.open("rb") as stream:
            return stream.seek(0, os.SEEK_END)
    except FileNotFoundError:
        return 0


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        # NumPy raises a ValueError for a file that became shorter.
        why = getattr(error, "strerror", None) or error
        raise ExportError(
            f"{folder}: cannot be read ({why}); remove the folder, and run the command again"
        ) from error


def _checksums(keys: TextKeys, vectors: Vectors) -> NDArray[np.uint32]:
    """Return the checksums of entries' keys and embeddings."""
    pairs = zip(np.ascontiguousarray(keys), vectors, strict=True)
    return np.fromiter((crc32(vector, crc32(key)) for key, vector in pairs), np.uint32, len(keys))
