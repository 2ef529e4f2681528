"""The app's own encoder, which a release of kind ``external`` is made for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fala.errors import DataError, EncoderError, UsageError, counted, shown, without_texts
from fala.examples import LARGEST, Item, as_float32, check_texts

#: Returns the embeddings of n inputs, (n, d): texts, or the keys of ``Item`` objects.
Encoder = Callable[[list[str]], ArrayLike]


class _Thread(threading.local):
    """The app's functions that are running in this thread."""

    running: tuple[Encoder, ...] = ()


_thread = _Thread()

#: An encoder is accepted as a release's if the probes' mean cosine is at least this, and the
#: lengths of its embeddings differ by this share at most. The same model in int8 has .99.
MIN_COSINE, LENGTHS = 0.98, 0.2


class Encoders:
    """The app's encoders.

    Args:
        functions: One function for every external release, or several by the names of releases'
            encoders (``Bundle.encoder``); None for no function.

    Raises:
        DataError: It is neither.
    """

    def __init__(self, functions: Encoder | Mapping[str, Encoder] | None = None) -> None:
        single = [] if functions is None else [functions]
        for function in functions.values() if isinstance(functions, Mapping) else single:
            if not callable(function):
                raise DataError(
                    "encoder is a function of a list of inputs, or functions by their encoders' "
                    f"names, not {shown(function)}"
                )
        self._functions = functions

    def of(self, name: str) -> Encoder | None:
        """The function for a release's encoder; None without one."""
        functions = self._functions
        return functions.get(name) if isinstance(functions, Mapping) else functions


class ExternalEncoder:
    """A backbone that is the app's own encoder.

    Args:
        name: The encoder's name, with its version.
        dimension: Length of an embedding.
        function: The app's function; None for the vectors of items only.
    """

    is_transformer = True

    def __init__(self, name: str, dimension: int, function: Encoder | None) -> None:
        self._name, self._dimension, self._function = name, dimension, function

    @property
    def dimension(self) -> int:
        """Length of an embedding."""
        return self._dimension

    @property
    def has_function(self) -> bool:
        """Whether the app has passed its function."""
        return self._function is not None

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed inputs: an item by its vector, other inputs by the app's function.

        Args:
            texts: n texts, keys or items.

        Returns:
            The embeddings, shape (n, dimension).

        Raises:
            DataError: An input is not a text, or an item's vector has another length.
            EncoderError: The app passed no function; or it raises, or does not return n
                embeddings.
            UsageError: The function uses a device that asks it again.
        """
        inputs = check_texts(texts)
        embeddings = np.empty((len(inputs), self._dimension), np.float32)
        missing: list[int] = []
        for position, item in enumerate(inputs):
            if isinstance(item, Item) and item.encoder in {None, self._name}:
                item.check(self._dimension)
                embeddings[position] = item.vector
            else:
                missing.append(position)
        if missing:
            embeddings[missing] = self._ask([str(inputs[position]) for position in missing])
        return embeddings

    def check(self, inputs: Sequence[str], expected: NDArray[np.float32]) -> None:
        """Compare the app's function with the embeddings of the vendor's probes.

        Args:
            inputs: n inputs.
            expected: Their embeddings, (n, dimension).

        Raises:
            EncoderError: It is another encoder.
        """
        if self._function is None:
            return
        computed = self._ask(list(inputs)).astype(np.float64)
        lengths = np.linalg.norm(computed, axis=1), np.linalg.norm(expected, axis=1)
        products = (computed * expected).sum(axis=1)
        cosine = float(np.mean(products / np.maximum(lengths[0] * lengths[1], 1e-12)))
        ratio = float(lengths[0].sum() / max(lengths[1].sum(), 1e-12))
        if cosine < MIN_COSINE or abs(ratio - 1) > LENGTHS:
            raise EncoderError(
                f"this encoder is not {self._name}, which the release was made for: mean cosine "
                f"{cosine:.2f} on {counted(len(inputs), 'probe')}, and embeddings {ratio:.2f} "
                "times as long"
            )

    def _ask(self, inputs: list[str]) -> NDArray[np.float32]:
        """The embeddings by the app's function, checked."""
        if self._function is None:
            raise EncoderError(
                f"texts and keys are embedded by the app's own encoder {self._name}: "
                f"pass its function as encoder=, or as encoder={{{self._name!r}: function}}, to "
                "Device.create or Device.open; or pass fala.Item objects"
            )
        function, name = self._function, f"the app's encoder {self._name}"
        before = _thread.running
        if function in before:
            raise UsageError(
                f"{name} uses a device that asks the same encoder: compute the embeddings without "
                "the device"
            )
        try:
            _thread.running = (*before, function)
            returned = without_texts(
                partial(function, list(inputs)),
                lambda kind: EncoderError(
                    f"{name} failed on {counted(len(inputs), 'input')}: {kind}"
                ),
            )
        finally:
            _thread.running = before
        embeddings = without_texts(
            partial(as_float32, returned),
            lambda kind: EncoderError(
                f"{name} returned no array of numbers, but {shown(returned)}: {kind}"
            ),
        )
        if embeddings.shape != (len(inputs), self._dimension):
            raise EncoderError(
                f"{name} returned shape {embeddings.shape} for "
                f"{counted(len(inputs), 'input')}; ({len(inputs)}, {self._dimension}) is expected"
            )
        if not (np.abs(embeddings) <= LARGEST).all():
            raise EncoderError(
                f"{name} returned a number that is not finite, or too large for float16 "
                f"({LARGEST:g})"
            )
        return embeddings
