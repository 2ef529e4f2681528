"""Embed many texts by a backbone, and keep the embeddings for the steps that follow."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fala import Bundle
from fala.backbones import Backbone
from fala.cli import progress
from fala.model.heads import Vectors
from fala_export.checks import check_room
from fala_export.embedding.ranks import Ranks
from fala_export.embedding.table import Keys, Positions, Table, key_of, keys_of
from fala_export.errors import ExportError

# Texts of a stream that are in memory, and are sorted by length.
_BLOCK = 1 << 16
# Texts of the first sample whose time is measured, and seconds that are enough.
_FIRST_SAMPLE, _MEASURABLE = 64, 1.0
# Entries whose checksums are compared together.
_READ = 1 << 12
# Characters of a chunk, for each core: some twenty runs of a transformer on the CPU. After a chunk
# the embeddings are written, and the progress bar moves.
_CHARACTERS = 1 << 14
# Characters of a text that count: a transformer reads hardly more.
_LONGEST = 1 << 11


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


def chunks(texts: Sequence[str]) -> Iterator[list[int]]:
    """Positions of texts, a chunk at a time: those of similar length need little padding."""
    most = _CHARACTERS * (os.cpu_count() or 1) * Ranks().count
    chunk: list[int] = []
    characters = 0
    for position in sorted(range(len(texts)), key=lambda position: -len(texts[position])):
        chunk.append(position)
        characters += _weight(texts[position])
        if characters >= most:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _weight(text: str) -> int:
    """What a text costs, in characters; its special tokens cost something, too."""
    return min(len(text), _LONGEST) + 10


def encoded(backbone: Backbone, texts: Sequence[str]) -> Iterator[tuple[list[int], Vectors]]:
    """Positions of some texts and their embeddings, a chunk at a time.

    A backbone of torch moves to its device once, for all chunks. Of processes that work together,
    each encodes its share of a chunk, and all get the whole.
    """
    ranks = Ranks()
    place: AbstractContextManager[None] = getattr(backbone, "placed", nullcontext)()
    with place:
        for chunk in chunks(texts):
            shares = [chunk[rank :: ranks.count] for rank in range(ranks.count)]
            vectors = backbone.encode([texts[position] for position in shares[ranks.rank]])
            yield list(chain(*shares)), np.concatenate(ranks.of_all(vectors))


def embed(backbone: Backbone, texts: Sequence[str], label: str) -> Vectors:
    """Embed n texts, with a progress bar; shape (n, dimension)."""
    embeddings = np.empty((len(texts), backbone.dimension), dtype=np.float32)
    with progress(label, len(texts)) as bar:
        for positions, vectors in encoded(backbone, texts):
            embeddings[positions] = vectors
            bar.update(len(positions))
    return embeddings


def seconds_of(backbone: Backbone, texts: Sequence[str]) -> float:
    """Estimate the seconds that embedding n texts takes, by embedding some of them.

    ``encoded`` reads texts of similar length together, so the sample is a few groups of them. It
    grows until it takes long enough to be measured.
    """
    if not texts:
        return 0.0
    by_length = sorted(texts, key=len)
    for _ in encoded(backbone, by_length[:1]):  # the first time is slower
        pass
    size = _FIRST_SAMPLE
    while True:
        groups = _groups(by_length, size)
        start = time.perf_counter()
        for group in groups:
            for _ in encoded(backbone, group):
                pass
        seconds = time.perf_counter() - start
        if seconds >= _MEASURABLE or len(groups) == 1:
            return seconds / sum(map(_weight, chain(*groups))) * sum(map(_weight, texts))
        size *= 4


def _groups(by_length: Sequence[str], size: int) -> list[Sequence[str]]:
    """The middle texts of each quarter, as many in all; or all texts, if they are few."""
    if size >= len(by_length):
        return [by_length]
    middles = [part * len(by_length) // 8 for part in (1, 3, 5, 7)]
    return [by_length[middle - size // 8 : middle + size // 8] for middle in middles]


class Embeddings(Mapping[str, Vectors]):
    """Embeddings (d,) by text, read from a table where they are asked for; picklable.

    Attributes:
        table: The table.
        texts: The texts, all of which have an entry. They are only counted and iterated.
    """

    def __init__(self, table: Table, texts: Collection[str]) -> None:
        self.table, self.texts = table, texts

    @classmethod
    def open(cls, folder: Path, dimension: int, texts: Collection[str]) -> Embeddings:
        """Those of a folder that ``write`` wrote.

        Args:
            folder: The folder.
            dimension: Length of an embedding.
            texts: The texts.
        """
        return cls(Table(folder, dimension), texts)

    @classmethod
    def write(cls, folder: Path, texts: Sequence[str], vectors: Vectors) -> Embeddings:
        """Write the embeddings (n, dimension) of n texts into a new folder.

        Raises:
            ExportError: It cannot be written.
        """
        table = Table(folder, vectors.shape[1])
        table.add(keys_of(texts), vectors)
        return cls(table, texts)

    @property
    def folder(self) -> Path:
        """The table's folder."""
        return self.table.folder

    def moved(self, folder: Path) -> Embeddings:
        """The same embeddings, of a copy of the folder."""
        return self.open(folder, self.table.dimension, self.texts)

    def take(self, texts: Sequence[str]) -> Vectors:
        """The embeddings of n texts in one gather, shape (n, dimension).

        Raises:
            ExportError: An embedding is damaged.
            KeyError: A text has none.
        """
        rows = self.table.find(keys_of(texts))
        if (rows < 0).any():
            raise KeyError(f"text {int(np.argmax(rows < 0))} has no embedding")
        return _read(self.table, rows)

    def __getitem__(self, text: str) -> Vectors:
        row = self.table.find_one(key_of(text))
        if row < 0:
            raise KeyError("the text has no embedding")
        return _read(self.table, np.array([row]))[0]

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self.table.find_one(key_of(text)) >= 0

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)


class Stream:
    """The embeddings of a stream of n texts: an array (n, dimension) whose rows are read late.

    Attributes:
        shape: (n, dimension).
    """

    def __init__(self, table: Table, rows: Positions) -> None:
        self._table, self._rows = table, rows
        self.shape = (len(rows), table.dimension)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, positions: slice | NDArray[np.integer]) -> Vectors:
        return _read(self._table, self._rows[positions])


def _read(table: Table, rows: Positions) -> Vectors:
    """The embeddings of some rows.

    Raises:
        ExportError: One is damaged.
    """
    vectors, whole = table.read(rows)
    if not whole.all():
        raise ExportError(
            f"{table.folder}: an embedding is damaged; run the command again, or remove the folder"
        )
    return vectors


class Embedder:
    """Embeds texts, and keeps the embeddings by digest of backbone and text.

    The folder has a ``Table`` for each backbone. A text with a damaged entry is encoded again. Of
    processes that ``accelerate launch`` started, each encodes its share.

    Args:
        folder: Folder of the tables; None keeps none.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._tables: dict[str, Table] = {}

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
        return self.stream(backbone, digest, texts, label)[:]

    def mapping(
        self, backbone: Backbone, digest: str, texts: Collection[str], label: str
    ) -> Embeddings:
        """Embed texts as ``embed`` does; the embeddings stay on the disk.

        Without a folder they are in a temporary one, which is removed after their last use.
        """
        table = self._table(backbone.dimension, digest)
        self._add(table, backbone, texts, label)
        return Embeddings(table, texts)

    def stream(self, backbone: Backbone, digest: str, texts: Iterable[str], label: str) -> Stream:
        """Embed a stream of texts, of which a few are in memory at a time; see ``mapping``."""
        table = self._table(backbone.dimension, digest)
        return Stream(table, self._add(table, backbone, texts, label))

    def pending(self, dimension: int, digest: str, texts: Iterable[str]) -> list[str]:
        """The distinct texts that a backbone has not encoded yet.

        Args:
            dimension: Length of its embeddings.
            digest: See ``embed``.
            texts: The texts.
        """
        if self._folder is None:
            return list(dict.fromkeys(texts))
        table, pending = self._table(dimension, digest), dict[str, None]()
        for block in _blocks(texts):
            _, is_pending = _found(table, keys_of(block))
            pending |= dict.fromkeys(block[position] for position in np.flatnonzero(is_pending))
        return list(pending)

    def _table(self, dimension: int, digest: str) -> Table:
        if self._folder is None:
            table = Table(Path(tempfile.mkdtemp(prefix="fala-embeddings-")), dimension)
            weakref.finalize(table, shutil.rmtree, table.folder, ignore_errors=True)
            return table
        if digest not in self._tables:
            self._tables[digest] = Table(self._folder / digest, dimension)
        return self._tables[digest]

    def _add(self, table: Table, backbone: Backbone, texts: Iterable[str], label: str) -> Positions:
        """Encode the pending texts; the rows of all, shape (n,)."""
        ranks = Ranks()
        # Without a folder, each process has a table of its own.
        writes = ranks.rank == 0 or self._folder is None
        parts = []
        with progress(label, len(texts) if isinstance(texts, Sized) else 0) as bar:
            for block in _blocks(texts):
                keys = keys_of(block)
                rows, is_pending = _found(table, keys)
                # Only one process may choose: another's choice depends on when it looks.
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
                        f"{table.folder}: lacks embeddings that another process wrote: processes "
                        "that work together need a folder that all of them read"
                    )
                parts.append(rows)
        return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    stream = iter(texts)
    while block := list(islice(stream, _BLOCK)):
        yield block


def _found(table: Table, keys: Keys) -> tuple[Positions, NDArray[np.bool_]]:
    """The rows of keys, and which of them have no undamaged entry."""
    rows = table.find(keys)
    is_pending = rows < 0
    present = np.flatnonzero(~is_pending)
    for start in range(0, len(present), _READ):
        part = present[start : start + _READ]
        is_pending[part] = ~table.read(rows[part])[1]
    return rows, is_pending
