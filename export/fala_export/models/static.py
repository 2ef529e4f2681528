"""Load static embeddings of sentence-transformers or model2vec: a table of vectors by token.

A device reads them as a table if it supports their tokenizer (``fala.backbones.WordPiece``) and
their steps can be folded into the table. Otherwise it runs them like any graph.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper
from safetensors.torch import load_file
from tokenizers import Tokenizer

from fala.bundle.format import MAX_TOKENS
from fala_export.base.errors import ExportError
from fala_export.graph.edit import GraphEdit
from fala_export.graph.runtime import session
from fala_export.models.encoder import Encoder, checked_length
from fala_export.models.exported_graph import ExportedGraph
from fala_export.models.files import ModelFiles
from fala_export.models.folder import (
    CONFIGURATION,
    TOKENIZER,
    Modules,
    find_weights,
    read_object,
    reading_part,
)
from fala_export.models.onnx_graph import OPSET, check_weights
from fala_export.models.sentence_encoder import Ending
from fala_export.models.static_table import StaticTable, after_steps
from fala_export.models.tokenizer import lower_case, put_before, read_tokenizer
from fala_export.models.wordpiece import NotPlainError, plain_wordpiece
from fala_export.recipe.settings import ModelSource

_MODEL2VEC = "model2vec"
_LIBRARY, _OTHER = "embedding.weight", "embeddings"  # Names of the table in the two libraries.
_TINY = 1e-9  # Keeps the mean of a row without tokens finite.
_DEFAULT_LENGTH = 512  # Number of tokens that model2vec reads by default.


def is_static(folder: Path, modules: Modules) -> bool:
    """Return whether a model's files are those of static embeddings.

    Args:
        folder: The model's folder.
        modules: The steps that the model's files list.
    """
    if modules.listed:
        return modules.static
    config = read_object(folder / CONFIGURATION) or {}
    return config.get("model_type") == _MODEL2VEC or "StaticModel" in (
        config.get("architectures") or ()
    )


def load_static(
    folder: Path,
    modules: Modules,
    model: ModelSource,
    pooling: str | None = None,
    max_length: int | None = None,
) -> Encoder:
    """Load static embeddings as a graph, and as a table if a device can read them so.

    Args:
        folder: A folder that sentence-transformers or model2vec wrote.
        modules: The steps that the model's files list.
        model: The vendor's settings of the model's files.
        pooling: The pooling; only ``"mean"`` is possible.
        max_length: Number of tokens of a text that are read; None uses the model's maximum.

    Raises:
        ExportError: A file is missing or cannot be read, the files do not fit together, or an
            embedding cannot be exported as the files describe it.
    """
    if pooling not in (None, "mean"):
        raise ExportError("static embeddings must be pooled by the mean")
    files, inner = ModelFiles.read(folder, modules, model), folder / modules.transformer
    if not (inner / TOKENIZER[0]).is_file():
        raise ExportError(f"has no {TOKENIZER[0]}")
    reader, _ = read_tokenizer(inner / TOKENIZER[0])
    truncation = reader.truncation or {}
    reader.no_truncation()
    if files.lowercase:
        lower_case(reader)
    state = json.loads(reader.to_str())
    state["post_processor"] = None  # Tokens that are added around a text do not count in the mean.
    reader, plain = (Tokenizer.from_str(json.dumps(state)) for _ in range(2))
    if files.prompt:
        put_before(reader, files.prompt)
    arrays = _read_arrays(find_weights(inner))
    config = (read_object(folder / CONFIGURATION) or {}) if _OTHER in arrays else {}
    rows = _Rows(arrays, _unknown(state, reader) if _OTHER in arrays else None)
    rows.check(max(reader.get_vocab(with_added_tokens=True).values()))
    check_weights(rows.table.nbytes)
    end = Ending(None, rows.table.shape[1])
    files.finish(end)
    end.normalize |= bool(config.get("normalize") and not modules.after)
    limit, side = truncation.get("max_length"), truncation.get("direction")
    if _OTHER in arrays:  # Texts are truncated at the end, whatever the tokenizer says.
        limit, side = config.get("max_length", _DEFAULT_LENGTH), None
    most = min(limit or MAX_TOKENS, MAX_TOKENS)
    longest = checked_length(max_length, most, most)
    graph = rows.graph()
    encoder = Encoder(
        model=ExportedGraph(graph, session(graph), graph.graph.output[0].name, end.eval()),
        tokenizer=reader.to_str().encode(),
        pad_id=rows.padding,
        longest=longest,
        usual=longest,
        prompt=files.prompt,
        not_kept=files.not_kept(side, TOKENIZER[0]),
    )
    try:
        vectors = after_steps(rows.folded(), end)
        vocabulary, tokens = plain_wordpiece(plain)
    except NotPlainError as error:
        return replace(encoder, not_static=str(error))
    read = {
        "tokenizer": tokens,
        "prompt": files.prompt,
        "normalized": end.normalize,
        "skips_unknown": _OTHER in arrays,
        "characters": _characters(plain, longest) if _OTHER in arrays and limit else None,
    }
    tokens_read = longest if limit or max_length else None
    table = StaticTable(vocabulary, vectors[: len(vocabulary)], read, tokens_read)
    return replace(encoder, table=table)


def _characters(tokenizer: Tokenizer, longest: int) -> int:
    """Return the characters of a text that model2vec reads: the median length for every token."""
    lengths = sorted(map(len, tokenizer.get_vocab(with_added_tokens=True)))
    return max(longest * int(np.median(lengths)), 1)


class _Rows:
    """The rows of a table by token, and their weight in a text's mean.

    Args:
        arrays: The file's arrays, by name.
        unknown: Id of a token that does not count in the mean; None if all count.

    Attributes:
        table: The vectors, shape (R, dim).
        index: The row of each token, shape (V,); None if each token's row is its id.
        padding: Id of a token that does not count in the mean; it follows the tokenizer's last
            token.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], unknown: int | None) -> None:
        table = arrays.get(_OTHER, arrays.get(_LIBRARY))
        index, weights = arrays.get("mapping"), arrays.get("weights")
        if table is None or table.ndim != 2 or not table.size:
            raise ExportError(f"its weights have no table named {_OTHER} or {_LIBRARY}")
        self.table = table.astype(np.float32)
        self.padding = len(self.table if index is None else index)
        sizes = {len(part) for part in (index, weights) if part is not None} | {self.padding}
        if len(sizes) > 1 or (index is not None and not _within(index, len(self.table))):
            raise ExportError("its mapping and weights do not fit its table")
        self._factors = np.ones(self.padding + 1, np.float32)
        if weights is not None:
            self._factors[:-1] = weights
        if not np.isfinite(self.table).all() or not np.isfinite(self._factors).all():
            raise ExportError("its table must be finite, but contains NaN or infinity")
        self._counted = np.ones(self.padding + 1, np.float32)
        self._counted[-1] = 0
        if unknown is not None and unknown < self.padding:
            self._counted[unknown] = 0
        self.index = None if index is None else np.append(index.astype(np.int64), 0)
        # If there is one row for each token, weights need no array of their own.
        if self.index is None:
            self.table *= self._factors[:-1, None]
            self.table = np.append(self.table, np.zeros_like(self.table[:1]), axis=0)

    def check(self, last: int) -> None:
        """Check that the last token has a row.

        Raises:
            ExportError: The last token has no row.
        """
        if last >= self.padding:
            raise ExportError(
                f"its tokenizer has the token id {last}, but the table has only {self.padding} "
                "rows, so they do not fit together"
            )

    def folded(self) -> NDArray[np.float32]:
        """Return each token's vector in the mean, including weights, shape (V, dim)."""
        if self.index is None:
            return self.table[:-1]
        return self.table[self.index[:-1]] * self._factors[:-1, None]

    def graph(self) -> ModelProto:
        """Return the graph from token ids and mask to the mean of the tokens' rows."""
        shape = ["batch_size", "sequence_length"]
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, shape)
            for name in ("input_ids", "attention_mask")
        ]
        ids, mask = (value.name for value in inputs)
        opset = [helper.make_opsetid("", OPSET)]
        empty = helper.make_graph([], "static", inputs, [])
        edit = GraphEdit(helper.make_model(empty, opset_imports=opset, ir_version=8))
        numbers = ids
        if self.index is not None:
            numbers = edit.add("Gather", [edit.constant(self.index), ids])
        rows = edit.add("Gather", [edit.constant(self.table), numbers])
        real = edit.add("Cast", [mask], to=TensorProto.FLOAT)
        real = edit.add("Mul", [real, edit.add("Gather", [edit.constant(self._counted), ids])])
        weights = real
        if self.index is not None:
            factors = edit.add("Gather", [edit.constant(self._factors), ids])
            weights = edit.add("Mul", [real, factors])
        weights = edit.add("Unsqueeze", [weights, edit.constant(np.array([2]))])
        axis = edit.constant(np.array([1]))
        total = edit.add("ReduceSum", [edit.add("Mul", [rows, weights]), axis], keepdims=0)
        count = edit.add("ReduceSum", [real, axis], keepdims=1)
        count = edit.add("Max", [count, edit.constant(np.float32(_TINY))])
        mean = edit.add("Div", [total, count])
        edit.add_output(mean, "mean", ["batch_size", self.table.shape[1]])
        return edit.finish()


def _within(index: NDArray[Any], rows: int) -> bool:
    return index.dtype.kind in "iu" and bool(((index >= 0) & (index < rows)).all())


def _unknown(state: Mapping[str, Any], reader: Tokenizer) -> int | None:
    """Return the id of the token for unknown words, which model2vec leaves out."""
    model = state["model"]
    token = model.get("unk_token")
    found = model.get("unk_id") if token is None else reader.token_to_id(token)
    return None if found is None else int(found)


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of a weight file by name, with vectors in float32."""
    with reading_part("weights"):
        if path.suffix == ".json":
            raise ExportError("its table is split into several files; save it as one file")
        if path.suffix == ".bin":
            tensors = torch.load(path, map_location="cpu", weights_only=True)
        else:
            tensors = load_file(path)
        return {
            name: (tensor.float() if tensor.is_floating_point() else tensor).numpy()
            for name, tensor in tensors.items()
        }
