"""A transformer that runs through onnxruntime; its graph includes the pooling."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.backbones.adapter import (
    MAX_BOTTLENECK,
    AdapterWeights,
    Shape,
    check_inputs,
    optional_shapes,
    run_inputs,
)
from fala.base.errors import (
    BundleFormatError,
    DataError,
    counted,
    is_failure,
    needs,
    safe_line,
    without_texts,
)
from fala.base.examples import LARGEST, check_texts, segments
from fala.base.forks import keep_in_forks

#: Tokens a run, padding included, where more than one text is in it: some eight short texts.
#: Measured on int8 transformers of 4 and 6 layers: 130 to 400 tokens a run cost the least processor
#: time a text. With fewer the matrices are too small. With more, texts of unequal length need
#: padding, a layer's output does not fit the cache, and there are too few runs for all cores.
RUN_TOKENS = 192

#: The least number of characters of a text that are read, which is enough for the tokens of any
#: encoder, with blanks and marks that are no tokens. Further characters would take memory in the
#: tokenizer (400 bytes each), which then drops them.
LONGEST = 1 << 17
_CHARACTERS_A_TOKEN = 8
_MOST_CHARACTERS = 1 << 20
# Characters that are tokenized at a time.
_TOKENIZED = 1 << 18

_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}

#: A function that returns the embeddings of n texts, (n, d).
Encode = Callable[[Sequence[str]], NDArray[np.float32]]
Feeds = Mapping[str, NDArray[Any]]


class OnnxEncoder:
    """A transformer encoder in an ONNX graph with one output of shape (n, dim).

    A model that quantizes activations by batch, like those of onnxruntime's own quantizer, returns
    embeddings that depend (by some .02 of their length) on the other texts of a run. Models that
    ``fala-export`` quantizes do not. The runs depend on the texts alone, not on the machine.

    Args:
        model: The ONNX file's bytes.
        tokenizer: The tokenizer's JSON (of the ``tokenizers`` library).
        max_length: Tokens of a text that are read; None reads all.
        pad_id: The padding token's id.

    Raises:
        MissingExtraError: onnxruntime or tokenizers is missing, or cannot be loaded.
        BundleFormatError: The model or the tokenizer cannot be loaded, or is not of this form, or
            the output's dimension is not fixed in the graph.
    """

    #: Called with texts and the function that encodes them, where embeddings are kept in memory.
    cached: Callable[[Sequence[str], Encode], NDArray[np.float32]] | None = None

    def __init__(
        self,
        model: bytes,
        tokenizer: bytes,
        *,
        max_length: int | None = None,
        pad_id: int = 0,
    ) -> None:
        session_class, options_class, tokenizer_class = libraries()
        options = options_class()
        options.log_severity_level = 4  # its log quotes the tokens that it fails on
        most = _most_threads()
        if most < (os.cpu_count() or 1) and not options.intra_op_num_threads:
            # onnxruntime counts all of the machine's cores.
            options.intra_op_num_threads = most
        # The audit reads no other format.
        options.add_session_config_entry("session.load_model_format", "ONNX")
        # Threads that spin between runs take the cores from the app.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        with _library_errors("onnxruntime cannot load the model"):
            self._session: Any = _opened(model, session_class, options)
            self._threads: int = options.intra_op_num_threads or most
            # Its Python class keeps the model's bytes, to load it again for other providers.
            self._session._model_bytes = None
            keep_in_forks(self)
            inputs = {entry.name: entry.type for entry in self._session.get_inputs()}
            outputs = self._session.get_outputs()
            self._optional = optional_shapes(self._session.get_overridable_initializers())
        self._together = self._threads > 1
        with _library_errors("the tokenizer cannot be loaded"):
            self._tokenizer = tokenizer_class.from_str(tokenizer.decode())
            self._tokenizer.no_padding()
            if max_length is None:
                self._tokenizer.no_truncation()
            else:
                self._tokenizer.enable_truncation(max_length)
            special = self._tokenizer.num_special_tokens_to_add(False)
            pair_special = self._tokenizer.num_special_tokens_to_add(True)
        if max_length is not None and max_length <= special:
            # The tokenizers library would not truncate at all.
            raise BundleFormatError(
                f"texts of at most {counted(max_length, 'token')} have no room beside "
                f"{counted(special, 'special one')}"
            )
        self._no_pairs = None
        if max_length is not None and max_length <= pair_special + 1:
            self._no_pairs = (
                f"there is no room for it in {counted(max_length, 'token')} beside "
                f"{counted(pair_special, 'special one')}"
            )
        self._pad_id = pad_id
        characters = max(LONGEST, _CHARACTERS_A_TOKEN * (max_length or 0))
        self._longest = min(characters, _MOST_CHARACTERS)
        self._inputs = set(inputs)
        kinds = [entry.type for entry in outputs]
        if (
            not {"input_ids", "attention_mask"} <= self._inputs <= _INPUTS
            or set(inputs.values()) != {"tensor(int64)"}
            or kinds != ["tensor(float)"]
        ):
            raise BundleFormatError(
                f"the graph takes {safe_line(inputs)} and returns {kinds}; "
                "expected input_ids and attention_mask (and token_type_ids) in int64, and one "
                "embedding in float32"
            )
        shape = outputs[0].shape
        if len(shape) != 2 or not isinstance(shape[1], int):
            raise BundleFormatError(
                f"the graph's output has shape {safe_line(shape)}; expected (n, dimension)"
            )
        self._dimension = shape[1]
        self._last: tuple[AdapterWeights, Feeds] | None = None

    @property
    def dimension(self) -> int:
        """Length of an embedding."""
        return self._dimension

    @property
    def optional_inputs(self) -> Mapping[str, Shape]:
        """The inputs that an adapter may feed: their shapes by name."""
        return self._optional

    def encode(
        self, texts: Sequence[str], adapter: AdapterWeights | None = None
    ) -> NDArray[np.float32]:
        """Embed texts, a few of similar length at a time, on every core.

        The first ``LONGEST`` characters of a text, or of each segment of a pair, are read, or eight
        a token if that is more, but no more than a million. A pair that is too long loses tokens of
        its longer segment.

        Args:
            texts: n texts; see ``fala.Pair`` for those of two segments.
            adapter: A task's adapter; None for the backbone alone. It is for this call only, so
                that threads may use several.

        Returns:
            The embeddings, shape (n, dimension).

        Raises:
            DataError: An item is not a text, or is a pair that does not fit; the error names its
                position.
            BundleFormatError: The adapter does not fit the graph; the tokenizer or the model fails
                on a text; or the model returns NaN, infinity or another shape than its graph
                declares. These are the vendor's mistakes.
        """
        texts = check_texts(texts)
        if self.cached is not None and adapter is None:
            return self.cached(texts, self._encoded)
        return self._encoded(texts, adapter)

    def _encoded(
        self, texts: Sequence[str], adapter: AdapterWeights | None = None
    ) -> NDArray[np.float32]:
        adapter_inputs = self._adapter_inputs(adapter)
        ids, types = self._tokenized(texts)
        result = np.empty((len(ids), self._dimension), dtype=np.float32)

        def embed(positions: list[int]) -> None:
            result[positions] = self._run(
                [ids[position] for position in positions],
                [types[position] for position in positions],
                adapter_inputs,
            )

        runs = _runs(ids, types)
        threads = min(self._threads, len(runs))
        if threads < 2:
            for positions in runs:
                embed(positions)
            return result
        # Small runs in parallel: the cores of one shared run would wait for each other at every
        # layer. A run's embeddings do not depend on other runs.
        with ThreadPoolExecutor(threads) as pool:
            try:
                embedded: Iterator[None] = pool.map(embed, runs)
            except RuntimeError:  # not as many threads can be started
                embedded = map(embed, runs)
            for _ in embedded:
                pass
        return result

    @property
    def vocabulary(self) -> list[int]:
        """The tokens' ids, in rising order."""
        return sorted(self._tokenizer.get_vocab(with_added_tokens=True).values())

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of texts, as ``encode`` reads them.

        Raises:
            DataError: An item is not a text.
            BundleFormatError: The tokenizer fails on one.
        """
        return self._tokenized(check_texts(texts))[0]

    def try_ids(self, ids: Sequence[Sequence[int]], *, optional: bool = False) -> None:
        """Run token ids, whether a text has them or not, to see that the model does not fail.

        Args:
            ids: The ids of n texts of the same length, for one run.
            optional: Whether the optional inputs are as large as they may be, and zero.

        Raises:
            BundleFormatError: The model fails.
        """
        largest = {
            name: np.zeros([MAX_BOTTLENECK if length is None else length for length in shape], "f4")
            for name, shape in self._optional.items()
        }
        feeds = self._feeds([list(row) for row in ids], [], largest if optional else {})
        with _library_errors("the model fails"):
            self._session.run(None, feeds)

    def _tokenized(self, texts: Sequence[str]) -> tuple[list[list[int]], list[list[int]]]:
        """Return the token ids of every text, and the token types of every pair."""
        ids: list[list[int]] = []
        types: list[list[int]] = []
        cut = [tuple(part[: self._longest] for part in segments(text)) for text in texts]
        for position, parts in enumerate(cut):
            if len(parts) > 1 and self._no_pairs is not None:
                raise DataError(f"text {position} is a pair, and {self._no_pairs}")
        for chunk in _parts(cut):
            encodings = self._encodings(chunk)
            for parts, encoding in zip(chunk, encodings, strict=True):
                ids.append(encoding.ids)
                types.append(encoding.type_ids if len(parts) > 1 else [])
        return ids, types

    def _encodings(self, chunk: Sequence[tuple[str, ...]]) -> list[Any]:
        """Return the tokenizer's output for texts, computed on all cores if its threads start."""
        if self._together:
            inputs = [parts if len(parts) > 1 else parts[0] for parts in chunk]
            try:
                return list(self._tokenizer.encode_batch(inputs))
            except BaseException as error:  # it panics without threads, which is no Exception
                if not is_failure(error):
                    raise
        failed = _failed("the tokenizer fails")
        encodings = [
            without_texts(partial(self._tokenizer.encode, *parts), failed) for parts in chunk
        ]
        self._together = False
        return encodings

    def _adapter_inputs(self, adapter: AdapterWeights | None) -> Feeds:
        """Return the inputs of an adapter; those of the latest one are cached."""
        if adapter is None:
            return {}
        last = self._last
        if last is None or last[0] is not adapter:
            self._last = last = None  # two tasks' arrays at once would double their memory
            inputs = adapter.inputs
            check_inputs(inputs, self._optional)
            self._last = last = adapter, run_inputs(inputs, self._optional)
        return last[1]

    def _run(
        self, ids: list[list[int]], types: list[list[int]], adapter_inputs: Feeds
    ) -> NDArray[np.float32]:
        feeds = self._feeds(ids, types, adapter_inputs)
        embeddings: NDArray[np.float32]
        (embeddings,) = without_texts(
            partial(self._session.run, None, feeds), _failed("the model fails")
        )
        if embeddings.shape != (len(ids), self._dimension):
            raise BundleFormatError(
                f"the model returned embeddings of shape {embeddings.shape} for "
                f"{counted(len(ids), 'text')}; "
                f"its graph declares (n, {self._dimension})"
            )
        if not (np.abs(embeddings) <= LARGEST).all():
            raise BundleFormatError(
                f"the model returned an embedding with NaN, infinity, or a number above {LARGEST:g}"
            )
        return embeddings

    def _feeds(
        self, ids: list[list[int]], types: list[list[int]], adapter_inputs: Feeds
    ) -> dict[str, NDArray[Any]]:
        # A text without any token, special ones included, is one unmasked padding token.
        ids = [row or [self._pad_id] for row in ids]
        length = max(len(row) for row in ids)
        input_ids = np.full((len(ids), length), self._pad_id, dtype=np.int64)
        mask = np.zeros((len(ids), length), dtype=np.int64)
        for position, row in enumerate(ids):
            input_ids[position, : len(row)] = row
            mask[position, : len(row)] = 1
        feeds: dict[str, NDArray[Any]] = {"input_ids": input_ids, "attention_mask": mask}
        if "token_type_ids" in self._inputs:
            feeds["token_type_ids"] = np.zeros_like(mask)
            for position, row in enumerate(types):
                feeds["token_type_ids"][position, : len(row)] = row
        return {**feeds, **adapter_inputs}


def libraries() -> tuple[Any, Any, Any]:
    """Return the classes of a session, its options, and a tokenizer, which are imported here.

    Raises:
        MissingExtraError: onnxruntime or tokenizers is missing, or cannot be loaded.
    """
    # Without this variable some builds of onnxruntime log each use in the user's home.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    with needs("a transformer needs onnxruntime", "onnxruntime"):
        from onnxruntime import InferenceSession, SessionOptions
    with needs("a transformer needs tokenizers", "tokenizers"):
        from tokenizers import Tokenizer
    return InferenceSession, SessionOptions, Tokenizer


def _opened(model: bytes, session_class: Any, options: Any) -> Any:  # noqa: ANN401 - no types
    """Return a session, which has no threads of its own if onnxruntime cannot start them.

    Args:
        model: The ONNX file's bytes.
        session_class: onnxruntime's class.
        options: The session's options, which afterwards say how many threads there are.
    """
    try:
        # The fallback would repeat the same, and print messages.
        return session_class(
            model, options, providers=["CPUExecutionProvider"], enable_fallback=False
        )
    except Exception as error:
        if not is_failure(error) or options.intra_op_num_threads == 1:
            raise
    options.intra_op_num_threads = 1
    return _opened(model, session_class, options)


def give_back() -> None:
    """Return freed memory to the operating system if the C library would keep it.

    glibc keeps the memory that onnxruntime read a model into, which is as large as the model.
    """
    # There may be another C library, or a Python without ctypes.
    with contextlib.suppress(ImportError, OSError, AttributeError, TypeError):
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)


def _parts(texts: Sequence[tuple[str, ...]]) -> Iterator[Sequence[tuple[str, ...]]]:
    """Yield texts in parts of limited size, as the tokenizer takes memory for each character."""
    start = characters = 0
    for position, text in enumerate(texts):
        size = sum(map(len, text))
        if position > start and characters + size > _TOKENIZED:
            yield texts[start:position]
            start, characters = position, 0
        characters += size
    yield texts[start:]


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _most_threads() -> int:
    """Return how many threads a session may have: the number of cores, or of a set limit."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores(), int(threads)) if threads.isdecimal() and int(threads) else cores()


def _runs(ids: Sequence[list[int]], types: Sequence[list[int]]) -> list[list[int]]:
    """Return positions of texts in runs of similar length, independent of the texts' order."""
    # The longest run first, so that the cores end at about the same time.
    runs: list[list[int]] = []
    longest = 0  # tokens of the last run's first text
    for position in sorted(range(len(ids)), key=lambda at: (-len(ids[at]), ids[at], types[at])):
        if not runs or (len(runs[-1]) + 1) * longest > RUN_TOKENS:
            runs.append([])
            longest = max(len(ids[position]), 1)
        runs[-1].append(position)
    return runs


def _failed(message: str) -> Callable[[str], BundleFormatError]:
    """Return the error for a library that failed on texts; see ``without_texts``."""
    return lambda kind: BundleFormatError(f"{message} on a text: {kind}")


@contextlib.contextmanager
def _library_errors(message: str) -> Iterator[None]:
    """Raise a library's errors, with their messages, because they are about no text."""
    try:
        yield
    except BaseException as error:  # neither library has a base class for its errors
        if not is_failure(error):
            raise
        raise BundleFormatError(f"{message}: {safe_line(error)}") from error
