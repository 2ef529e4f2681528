"""An encoder that was exported elsewhere: one ONNX file, and its tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto
from onnx.external_data_helper import uses_external_data
from onnxruntime import InferenceSession
from tokenizers import Tokenizer

from fala.bundle.format import MAX_TOKENS
from fala_export.errors import ExportError
from fala_export.graph.edit import GraphEdit
from fala_export.graph.runtime import session
from fala_export.models.encoder import DEFAULT_LENGTH, token_ids
from fala_export.models.folder import (
    CONFIGURATION,
    TOKENIZER,
    Modules,
    check_truncation,
    lists_normalize,
    naming,
    read_json,
    read_modules,
    read_pooling,
    read_sentence_settings,
)
from fala_export.models.onnx_graph import OPSET
from fala_export.models.tokenizer import check_agreement, lower_case
from fala_export.quiet import first_line

_IDS, _MASK, _TYPES = "input_ids", "attention_mask", "token_type_ids"
_POOLED = ("mean", "cls")
_PADDING = ("[PAD]", "<pad>")
_UNTRAINED = "pooler_output"  # of BERT's pre-training; the embedding of hardly any encoder
_TINY = 1e-9  # keeps the mean of a row without tokens finite
_UNIT = 1e-3  # tolerance of an embedding's length, if embeddings are scaled to 1


@dataclass(frozen=True)
class OnnxFile:
    """A file's graph, and how a text becomes its embedding; used like an ``Encoder``.

    Attributes:
        tokenizer: The ``tokenizers`` library's tokenizer as JSON, without truncation and padding.
        pad_id: The padding token's id.
        longest: Most tokens of a text that are read here.
        pooling: ``"none"`` where the file pools by itself, else ``"mean"`` or ``"cls"``.
        normalized: Whether embeddings have length 1.
        revision: None; only a model on the hub has one.
        not_kept: As of an ``Encoder``.
    """

    tokenizer: bytes
    pad_id: int
    longest: int
    pooling: str
    normalized: bool
    _model: ModelProto
    _session: InferenceSession
    _output: str
    _normalize: bool
    revision: None = None
    not_kept: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Size of the graph, in bytes."""
        return self._model.ByteSize()

    def length(self, wanted: int | None) -> int:
        """Tokens of a text to read: ``wanted``, or the length that the file was tested with."""
        return self.longest if wanted is None else wanted

    def token_ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """The tokens of each text; see ``token_ids``."""
        return token_ids(self.tokenizer, self.pad_id, texts, max_length)

    def encode(
        self,
        texts: Sequence[str],
        max_length: int,
        step: Callable[[int], None] = lambda _: None,
    ) -> NDArray[np.float32]:
        """Embed texts one by one by the original file, the reference of the export."""
        embeddings = []
        for ids in self.token_ids(texts, max_length):
            (values,) = self._session.run([self._output], _feeds(self._session, np.array([ids])))
            if self.pooling == "mean":
                values = values.mean(axis=1)
            elif self.pooling == "cls":
                values = values[:, 0]
            embeddings.append(values[0])
            step(1)
        rows = np.array(embeddings, dtype=np.float32)
        if self._normalize:
            rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _TINY)
        return rows

    def graph(self) -> ModelProto:
        """The graph from token ids and mask to ``embedding``, like that of ``encoder_graph``.

        Raises:
            ExportError: Its operators cannot be converted to ``OPSET``.
        """
        model = ModelProto()
        model.CopyFrom(self._model)
        del model.graph.output[:]
        inputs = [value for value in model.graph.input if value.name != _TYPES]
        has_types = len(inputs) < len(model.graph.input)
        del model.graph.input[:]
        model.graph.input.extend(inputs)
        edit = GraphEdit(model)
        if has_types:  # a single text is all of the first type
            edit.add("Sub", [_IDS, _IDS], _TYPES)
        for node in edit.source:
            edit.keep(node)
        pooled, tokens = self._output, edit.constant(np.array([1]))
        if self.pooling == "cls":
            pooled = edit.add("Gather", [pooled, edit.constant(np.int64(0))], axis=1)
        elif self.pooling == "mean":
            mask = edit.add("Cast", [_MASK], to=TensorProto.FLOAT)
            mask = edit.add("Unsqueeze", [mask, edit.constant(np.array([2]))])
            states = edit.add("Mul", [pooled, mask])
            total = edit.add("ReduceSum", [states, tokens], keepdims=0)
            count = edit.add("ReduceSum", [mask, tokens], keepdims=0)
            count = edit.add("Max", [count, edit.constant(np.float32(_TINY))])
            pooled = edit.add("Div", [total, count])
        if self._normalize:
            length = edit.add("ReduceL2", [pooled, tokens], keepdims=1)
            length = edit.add("Max", [length, edit.constant(np.float32(_TINY))])
            pooled = edit.add("Div", [pooled, length])
        (shape,) = self.encode([""], self.longest).shape[1:]
        edit.add_output(pooled, "embedding", ["batch_size", shape])
        return edit.finish()


def load_onnx(
    path: Path,
    tokenizer: Path,
    pooling: str | None = None,
    max_length: int | None = None,
    ignore: Collection[str] = (),
) -> OnnxFile:
    """Load an ONNX file that returns a text's embedding, or the states of its tokens.

    The files of sentence-transformers beside it, or beside its folder ``onnx``, say how texts are
    read, and how states are pooled.

    Args:
        path: The file; its inputs are ``input_ids``, ``attention_mask`` and perhaps
            ``token_type_ids``.
        tokenizer: Its ``tokenizer.json``.
        pooling: ``"mean"`` or ``"cls"`` pools the states of the tokens; None takes the file's last
            embedding, or where it has none the pooling of the files beside it, or the mean.
        max_length: Tokens of a text that are read; None takes 128, or the lower limit in the files
            beside it.
        ignore: As for ``load_encoder``.

    Raises:
        ExportError: One of the files cannot be read, or they do not belong together, or the graph
            is not one of an encoder, or an embedding cannot be exported as the files describe it.
    """
    with naming(str(path)):
        return _load(path, tokenizer, pooling, max_length, ignore)


def _load(
    path: Path,
    tokenizer: Path,
    pooling: str | None,
    max_length: int | None,
    ignore: Collection[str],
) -> OnnxFile:
    if pooling == "layers":
        raise ExportError("an ONNX file returns no inner layers; export the folder")
    folder = path.parent.parent if path.parent.name == "onnx" else path.parent
    settings = read_sentence_settings(folder, Modules(), ignore)
    reader, pad_id = _read_tokenizer(tokenizer)
    beside = read_json(tokenizer.with_name(TOKENIZER[1])) or {}
    check_agreement(reader, beside)
    own = {**(reader.truncation or {}), **beside}
    side = own.get("truncation_side", own.get("direction"))
    cut = check_truncation(side, tokenizer.name, ignore)
    reader.no_truncation()
    if settings.lowercase:
        lower_case(reader)
    most = min(settings.longest or int(own.get("model_max_length") or MAX_TOKENS), MAX_TOKENS)
    default = min(most, own.get("max_length") or DEFAULT_LENGTH, DEFAULT_LENGTH)
    longest = default if max_length is None else max_length
    if not 0 < longest <= most:
        raise ExportError(f"the model reads 1 to {most} tokens of a text, not {longest}")
    model = _read_model(path)
    try:
        runner = session(model)
    except Exception as error:  # onnxruntime has no base class for its errors
        raise ExportError(f"cannot be run: {first_line(error)}") from error
    names = {value.name for value in runner.get_inputs()}
    if not {_IDS, _MASK} <= names <= {_IDS, _MASK, _TYPES}:
        raise ExportError(
            f"its inputs are {', '.join(sorted(names))}; those of an encoder are {_IDS}, "
            f"{_MASK} and perhaps {_TYPES}"
        )
    last = max(reader.get_vocab(with_added_tokens=True).values())
    # The largest token id at full length: a file that runs these texts runs any.
    values = _run(runner, np.full((2, longest), last))
    output, pooled = _choose_output(values, pooling, longest)
    if pooled:
        lengths = np.linalg.norm(values[output], axis=1)
        unit = bool((np.abs(lengths - 1) < _UNIT).all())
        mode, normalize = "none", not unit and lists_normalize(folder)
    else:
        mode, normalize = _pooling(folder, pooling, values[output].shape[2])
        unit = False
    return OnnxFile(
        tokenizer=reader.to_str().encode(),
        pad_id=pad_id,
        longest=longest,
        pooling=mode,
        normalized=normalize or unit,
        _model=model,
        _session=runner,
        _output=output,
        _normalize=normalize,
        not_kept={**settings.not_kept, **cut},
    )


def _pooling(folder: Path, chosen: str | None, dimension: int) -> tuple[str, bool]:
    """How states are pooled, and whether embeddings are scaled to length 1.

    Args:
        folder: Folder of the model's files.
        chosen: The vendor's choice; None takes that of the files.
        dimension: Length of a state.
    """
    config = read_json(folder / CONFIGURATION) or {}
    modules = read_modules(folder)
    found = chosen or read_pooling(folder, modules, dimension)
    mode = found if isinstance(found, str) else getattr(found, "pooling_mode", "attention")
    if mode not in _POOLED:
        raise ExportError(
            f"the files beside it pool by {mode}, and an ONNX file is pooled by one of "
            f"{', '.join(_POOLED)}: export the folder, or choose with --pooling"
        )
    decodes = config.get("is_decoder") or config.get("is_encoder_decoder")
    if decodes and chosen is None and not modules.listed:
        raise ExportError(f"{CONFIGURATION} is of a model that decodes: choose with --pooling")
    return mode, modules.normalize


def _read_tokenizer(path: Path) -> tuple[Tokenizer, int]:
    """A tokenizer without padding, and the id of its padding token."""
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library has no class for its errors
        raise ExportError(f"{path}: cannot be read as a tokenizer: {first_line(error)}") from error
    padding = tokenizer.padding or {}
    ids = [tokenizer.token_to_id(token) for token in _PADDING]
    pad_id = padding.get("pad_id", next((id for id in ids if id is not None), 0))
    tokenizer.no_padding()
    return tokenizer, int(pad_id)


def _read_model(path: Path) -> ModelProto:
    """Read a graph, and convert operators older than ``OPSET``."""
    try:
        model = onnx.load(path, load_external_data=False)
        if any(uses_external_data(tensor) for tensor in model.graph.initializer):
            raise ExportError("keeps its weights in files of their own; save it as one")
        if max(entry.version for entry in model.opset_import if not entry.domain) < OPSET:
            model = onnx.version_converter.convert_version(model, OPSET)
        onnx.checker.check_model(model)
    except ExportError:
        raise
    except Exception as error:  # of protocol buffers, the file or the converter
        raise ExportError(f"cannot be read as ONNX: {first_line(error)}") from error
    return model


def _feeds(runner: InferenceSession, ids: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    values = {_IDS: ids, _MASK: np.ones_like(ids), _TYPES: np.zeros_like(ids)}
    return {value.name: values[value.name] for value in runner.get_inputs()}


def _run(runner: InferenceSession, ids: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """A file's outputs for some tokens, by name."""
    names = [value.name for value in runner.get_outputs()]
    try:
        values = runner.run(None, _feeds(runner, ids))
    except Exception as error:  # onnxruntime has no base class for its errors
        raise ExportError(
            f"cannot read {ids.shape[1]} tokens of its tokenizer (--max-length gives "
            f"fewer): {first_line(error)}"
        ) from error
    return dict(zip(names, values, strict=True))


def _choose_output(
    values: dict[str, NDArray[Any]], pooling: str | None, length: int
) -> tuple[str, bool]:
    """The output to take, and whether it is pooled."""
    floats = {name: value for name, value in values.items() if value.dtype == np.float32}
    embeddings = [name for name, value in floats.items() if value.ndim == 2 and len(value) == 2]
    states = [
        name for name, value in floats.items() if value.ndim == 3 and value.shape[:2] == (2, length)
    ]
    trained = [name for name in embeddings if name != _UNTRAINED]
    if pooling is None and trained:
        return trained[-1], True
    if states:
        return states[0], False
    raise ExportError(
        f"none of its outputs ({', '.join(values)}) is "
        f"{'the state of each token' if pooling else 'an embedding, or the state of each token'}"
    )
