"""A transformer through onnxruntime; pooling is inside the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.errors import BundleFormatError, DimensionError

#: Texts a run: beyond this a phone gains little speed and pays in memory.
BATCH_SIZE = 32


class OnnxEncoder:
    """A transformer encoder in an ONNX graph with one output of shape (n, dim).

    A model in int8 quantizes activations by batch, so a text's embedding depends in its last
    digits (about 1e-3) on the texts that it is encoded with.

    Args:
        model: The ONNX file's bytes.
        tokenizer: The tokenizer's JSON (of the ``tokenizers`` library).
        max_length: Tokens of a text that are read; None reads all.
        pad_id: The padding token's id.

    Raises:
        BundleFormatError: The model or the tokenizer cannot be loaded, or is not of this form.
        DimensionError: The output's dimension is not fixed in the graph.
    """

    is_transformer = True

    def __init__(
        self, model: bytes, tokenizer: bytes, *, max_length: int | None = None, pad_id: int = 0
    ) -> None:
        # Imported here: `import fala` stays as quick as numpy and scipy.
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        try:
            self._session: Any = onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's errors have no base class of their own
            raise BundleFormatError(f"onnxruntime cannot load the model: {error}") from error
        try:
            self._tokenizer = Tokenizer.from_str(tokenizer.decode())
        except Exception as error:  # tokenizers raises bare Exception
            raise BundleFormatError(f"the tokenizer cannot be loaded: {error}") from error
        self._tokenizer.no_padding()
        if max_length is None:
            self._tokenizer.no_truncation()
        else:
            self._tokenizer.enable_truncation(max_length)
        self._pad_id = pad_id
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        outputs = self._session.get_outputs()
        known = {"input_ids", "attention_mask", "token_type_ids"}
        if not {"input_ids", "attention_mask"} <= self._inputs <= known or len(outputs) != 1:
            raise BundleFormatError(
                f"the graph takes {sorted(self._inputs)} and gives {len(outputs)} outputs; "
                "expected input_ids, attention_mask (and token_type_ids), and one embedding"
            )
        shape = outputs[0].shape
        if len(shape) != 2 or not isinstance(shape[1], int):
            raise DimensionError(f"the graph's output has shape {shape}; expected (n, dimension)")
        self._dimension = shape[1]

    @property
    def dimension(self) -> int:
        """Length of an embedding."""
        return self._dimension

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts, in batches of similar length so that little is spent on padding.

        Args:
            texts: n texts.

        Returns:
            The embeddings, shape (n, dimension).
        """
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        result = np.empty((len(ids), self._dimension), dtype=np.float32)
        order = np.argsort([len(row) for row in ids], kind="stable")
        for start in range(0, len(ids), BATCH_SIZE):
            batch = order[start : start + BATCH_SIZE]
            result[batch] = self._run([ids[index] for index in batch])
        return result

    def _run(self, ids: list[list[int]]) -> NDArray[np.float32]:
        # A text without tokens (no special tokens either) is one masked-in padding token.
        ids = [row or [self._pad_id] for row in ids]
        length = max(len(row) for row in ids)
        input_ids = np.full((len(ids), length), self._pad_id, dtype=np.int64)
        mask = np.zeros((len(ids), length), dtype=np.int64)
        for position, row in enumerate(ids):
            input_ids[position, : len(row)] = row
            mask[position, : len(row)] = 1
        feeds = {"input_ids": input_ids, "attention_mask": mask}
        if "token_type_ids" in self._inputs:
            feeds["token_type_ids"] = np.zeros_like(mask)
        embeddings: NDArray[np.float32] = self._session.run(None, feeds)[0]
        return embeddings
