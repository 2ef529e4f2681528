"""Embeddings in memory that many devices share, because many users read the same news or films."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from fala.backbones.external import EncoderFunction, Functions
from fala.base.examples import as_float32

#: Bytes of a text's digest, and of the key that the digest is made with.
_DIGEST, _KEY = 16, 32


class EncodingCache:
    """Embeddings by text; the least recently used ones are dropped.

    The cache keeps no text, but digests under a key of this process, and is never written to the
    disk, so a text that a user deletes leaves nothing behind.

    Args:
        most_bytes: The most bytes that all embeddings together may take.

    Attributes:
        encoded: Number of texts that were encoded.
    """

    def __init__(self, most_bytes: int) -> None:
        self.encoded = 0
        self._most, self._bytes = most_bytes, 0
        self._key = os.urandom(_KEY)
        self._lock = Lock()
        self._embeddings: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()

    def encode(
        self,
        texts: Sequence[str],
        encode: Callable[[list[str]], NDArray[np.float32]],
        backbone: str = "",
    ) -> NDArray[np.float32]:
        """Return embeddings of texts, and encode those that are not cached.

        Args:
            texts: The n texts.
            encode: A function that returns the embeddings of texts, (n, d).
            backbone: The name of the backbone among those that share the cache.

        Returns:
            The embeddings, shape (n, d).
        """
        digests = [self._digest(backbone, text) for text in texts]
        with self._lock:
            embeddings = {mark: self._found(mark) for mark in digests if mark in self._embeddings}
        missing = {mark: text for mark, text in zip(digests, texts, strict=True)
                   if mark not in embeddings}  # fmt: skip
        if missing or not embeddings:
            encoded = encode(list(missing.values()))
            if encoded.ndim != 2 or len(encoded) != len(missing):
                return encoded  # the caller's check names the mistake
            fresh = dict(zip(missing, encoded, strict=True))
            with self._lock:
                self.encoded += len(fresh)
                for mark, embedding in fresh.items():
                    self._keep(mark, embedding)
            embeddings |= fresh
            if not embeddings:
                return encoded
        return np.stack([embeddings[mark] for mark in digests])

    def _digest(self, backbone: str, text: str) -> bytes:
        data = f"{len(backbone)} {backbone}{text}".encode("utf-8", "surrogatepass")
        return blake2b(data, key=self._key, digest_size=_DIGEST).digest()

    def _found(self, mark: bytes) -> NDArray[np.float32]:
        self._embeddings.move_to_end(mark)
        return self._embeddings[mark]

    def _keep(self, mark: bytes, embedding: NDArray[np.float32]) -> None:
        if mark in self._embeddings:  # another thread was first
            return
        # Keep a copy, because a row would keep the whole array that it belongs to.
        self._embeddings[mark] = embedding.copy()
        self._bytes += embedding.nbytes
        while self._bytes > self._most:
            self._bytes -= self._embeddings.popitem(last=False)[1].nbytes


def cached(functions: Functions | None, cache: EncodingCache) -> Functions | None:
    """Return the app's encoders by way of a cache, in which each encoder has its own part."""

    def of(name: str, function: EncoderFunction | None) -> EncoderFunction | None:
        if function is None:
            return None
        encode = function
        return lambda texts: cache.encode(texts, lambda missing: as_float32(encode(missing)), name)

    if isinstance(functions, Mapping):
        return {name: of(name, function) for name, function in functions.items()}
    return of("", functions)
