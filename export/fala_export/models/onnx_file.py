"""An encoder that was exported elsewhere: one ONNX file, and the files of its model beside it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto
from onnxruntime import InferenceSession
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer
from torch import nn

from fala.bundle.format import MAX_TOKENS
from fala_export.errors import ExportError
from fala_export.graph.edit import GraphEdit
from fala_export.graph.runtime import model_bytes, session
from fala_export.models.encoder import DEFAULT_LENGTH, changed, token_ids
from fala_export.models.folder import (
    CONFIGURATION,
    TOKENIZER,
    Modules,
    SentenceSettings,
    check_truncation,
    naming,
    read_json,
    read_pooling,
    read_settings,
)
from fala_export.models.onnx_reading import normal_form, read_graph
from fala_export.models.onnx_steps import Cut, add_steps, modes, read_steps, run_steps, widths
from fala_export.models.sentence_encoder import LAYERS
from fala_export.models.static_table import StaticTable
from fala_export.models.tokenizer import check_agreement, lower_case, put_before
from fala_export.quiet import first_line

_IDS, _MASK = "input_ids", "attention_mask"
_TYPES, _POSITIONS = "token_type_ids", "position_ids"
_INPUTS = {_IDS, _MASK, _TYPES, _POSITIONS}
_KINDS = {
    TensorProto.INT64: np.int64, TensorProto.INT32: np.int32, TensorProto.FLOAT: np.float32,
    TensorProto.BOOL: np.bool_,
}  # fmt: skip
_PADDING = ("[PAD]", "<pad>")
_STATES = ("last_hidden_state", "token_embeddings")
_UNTRAINED = "pooler_output"  # of BERT's pre-training; the embedding of hardly any encoder
_SCORES = "logits"  # of a classifier or a language model, by the usual name
# Models whose positions begin after the padding token's id.
_PAST_PADDING = ("camembert", "mpnet", "roberta", "xlm-roberta")
_UNIT = 1e-3  # tolerance of an embedding's length, if embeddings are scaled to 1
_FEATURES = "optimum-cli export onnx --task feature-extraction"


@dataclass(frozen=True)
class OnnxFile:
    """A file's graph, and how a text becomes its embedding; used like an ``Encoder``.

    Attributes:
        tokenizer: The ``tokenizers`` library's tokenizer as JSON, without truncation and padding.
        pad_id: The padding token's id.
        longest: Most tokens of a text that are read here.
        pooling: ``"none"`` where the file pools by itself, else the modes of its pooling.
        normalized: Whether embeddings have length 1.
        revision: None; only a model on the hub has one.
        prompt: The prompt before every text; the tokenizer puts it there.
        cut: Numbers of an embedding that are kept; None for all of them.
        not_kept: As of an ``Encoder``.
        not_layers: As of an ``Encoder``.
        steps: Modules of sentence-transformers after the graph's output.
        table: Static embeddings as a table, which a device runs in place of the graph; None where
            there is none.
        not_static: Why static embeddings are a graph on a device.
    """

    tokenizer: bytes
    pad_id: int
    longest: int
    pooling: str
    normalized: bool
    _model: ModelProto
    _session: InferenceSession
    _output: str
    steps: Sequence[nn.Module] = ()
    _first_position: int = 0
    revision: None = None
    prompt: str = ""
    cut: int | None = None
    not_kept: Mapping[str, str] = field(default_factory=dict)
    not_layers: str = ""
    table: StaticTable | None = None
    not_static: str = ""

    @property
    def changed(self) -> dict[str, Any]:
        """As of an ``Encoder``."""
        return changed(self.prompt, self.cut)

    @property
    def dimension(self) -> int:
        """Length of an embedding."""
        return self.encode([""], self.longest).shape[1]

    def shortened(self, kept: int | None) -> OnnxFile:
        """The same file with the first numbers of its embeddings; of length 1 where these are.

        Args:
            kept: Number of them; None keeps all.
        """
        if kept is None:
            return self
        again = [modules.Normalize()] if self.normalized else []
        return replace(self, cut=kept, steps=[*self.steps, Cut(kept), *again])

    @property
    def size(self) -> int:
        """Size of the graph, in bytes."""
        return model_bytes(self._model)

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
            row = np.array([ids])
            feeds = _feeds(self._session, row, self._first_position)
            (values,) = self._session.run([self._output], feeds)
            values = values.astype(np.float32)
            embeddings.append(run_steps(self.steps, values, np.ones_like(row))[0])
            step(1)
        return np.array(embeddings, dtype=np.float32)

    def graph(self) -> ModelProto:
        """The graph from token ids and mask to ``embedding``, like that of ``encoder_graph``."""
        model = ModelProto()
        model.CopyFrom(self._model)
        _drop_unused(model.graph, self._output)
        given = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
        del model.graph.output[:], model.graph.input[:]
        for name in (_IDS, _MASK):
            value = onnx.helper.make_tensor_value_info(
                name, TensorProto.INT64, ["batch_size", "sequence_length"]
            )
            model.graph.input.append(value)
        # An input of another type, or that no device feeds, is computed under a new name.
        renamed = {
            name: f"{name}.given" for name, kind in given.items()
            if kind != TensorProto.INT64 or name in (_TYPES, _POSITIONS)
        }  # fmt: skip
        _rename_inputs(model.graph, renamed)
        edit = GraphEdit(model)
        for name, inner in renamed.items():
            source = name
            if name in (_TYPES, _POSITIONS):
                source = edit.add("Sub", [_IDS, _IDS])  # a single text is all of the first type
            if name == _POSITIONS:
                one = edit.constant(np.int64(1))
                ordinals = edit.add("CumSum", [edit.add("Add", [source, one]), one])
                start = edit.constant(np.int64(self._first_position - 1))
                source = edit.add("Add", [ordinals, start])
            edit.add("Cast", [source], inner, to=given[name])
        for node in edit.source:
            edit.keep(node)
        embedding = add_steps(edit, self.steps, self._output, _MASK)
        edit.add_output(embedding, "embedding", ["batch_size", self.dimension])
        return edit.finish()


def load_onnx(
    path: Path,
    tokenizer: Path | None = None,
    pooling: str | None = None,
    max_length: int | None = None,
    ignore: Collection[str] = (),
    *,
    prompt: str | None = None,
    dimension: int | None = None,
) -> OnnxFile:
    """Load an ONNX file that returns a text's embedding, or the states of its tokens.

    The model's files beside it, or beside its folder ``onnx``, say how texts are read, and how
    states become an embedding.

    Args:
        path: The file; its inputs are ``input_ids``, ``attention_mask`` and perhaps
            ``token_type_ids`` and ``position_ids``.
        tokenizer: Its ``tokenizer.json``; None takes the one beside it.
        pooling: A mode that pools the states of the tokens; None takes the file's last embedding,
            or where it has none the pooling of the files beside it, or the mean.
        max_length: Tokens of a text that are read; None takes 128, or the lower limit in the files
            beside it.
        ignore: As for ``load_encoder``.
        prompt: As for ``load_encoder``.
        dimension: As for ``load_encoder``.

    Raises:
        ExportError: One of the files cannot be read, or they do not belong together, or the graph
            is not one of an encoder, or an embedding cannot be exported as the files describe it.
    """
    with naming(str(path)):
        if pooling == LAYERS:
            raise ExportError("an ONNX file returns no inner layers; export the folder")
        folder = path.parent.parent if path.parent.name == "onnx" else path.parent
        if tokenizer is None:
            places = [place / TOKENIZER[0] for place in (folder, path.parent)]
            tokenizer = next((place for place in places if place.is_file()), None)
        if tokenizer is None:
            raise ExportError(
                f"has no {TOKENIZER[0]} beside it: save its tokenizer there with transformers, or "
                "name it with --tokenizer"
            )
        settings = read_settings(folder, Modules())
        text = settings.prompt(prompt, ignore)
        file = _load(path, folder, tokenizer, pooling, max_length, ignore, settings, text)
        return file.shortened(settings.kept_numbers(dimension, file.dimension, ignore))


def _load(
    path: Path,
    folder: Path,
    tokenizer: Path,
    pooling: str | None,
    max_length: int | None,
    ignore: Collection[str],
    settings: SentenceSettings,
    prompt: str,
) -> OnnxFile:
    config = read_json(folder / CONFIGURATION) or {}
    reader, pad_id = read_tokenizer(tokenizer)
    beside = read_json(tokenizer.with_name(TOKENIZER[1])) or {}
    check_agreement(reader, beside)
    own = {**(reader.truncation or {}), **beside}
    side = own.get("truncation_side", own.get("direction"))
    cut = check_truncation(side, tokenizer.name, ignore)
    reader.no_truncation()
    if settings.lowercase:
        lower_case(reader)
    if prompt:
        put_before(reader, prompt)
    first = _first_position(config)
    most = _most_tokens(config, settings.longest, own) - first
    default = min(most, own.get("max_length") or DEFAULT_LENGTH, DEFAULT_LENGTH)
    longest = default if max_length is None else max_length
    if not 0 < longest <= most:
        raise ExportError(f"the model reads 1 to {most} tokens of a text, not {longest}")
    original = read_graph(path)
    _check_inputs(original)
    model = normal_form(original)
    runner = _open(original, model)
    last = max(reader.get_vocab(with_added_tokens=True).values())
    # The largest token id at full length: a file that runs these texts runs any.
    values = _run(runner, np.full((2, longest), last), first)
    output, steps = _choose_output(values, folder, config, pooling, longest)
    value = values[output]
    pooled = [step for step in steps if isinstance(step, modules.Pooling)]
    lengths = np.linalg.norm(value, axis=1) if value.ndim == 2 else np.zeros(1)
    unit = not steps and bool((np.abs(lengths - 1) < _UNIT).all())
    return OnnxFile(
        tokenizer=reader.to_str().encode(),
        pad_id=pad_id,
        longest=longest,
        pooling="+".join(modes(pooled[0])) if pooled else "none",
        normalized=unit or (bool(steps) and isinstance(steps[-1], modules.Normalize)),
        _model=model,
        _session=runner,
        _output=output,
        steps=steps,
        _first_position=first,
        prompt=prompt,
        not_kept={**settings.left_out(prompt, ignore), **cut},
    )


def _first_position(config: Mapping[str, Any]) -> int:
    """The position of a text's first token, as a model's configuration counts."""
    if config.get("model_type") not in _PAST_PADDING:
        return 0
    return int(config.get("pad_token_id") or 0) + 1


def _most_tokens(
    config: Mapping[str, Any], longest: int | None, tokenizer: Mapping[str, Any]
) -> int:
    """The lowest limit of a text's tokens in a model's files, positions before them included."""
    limits = [
        config.get("max_position_embeddings", config.get("n_positions")),
        longest or tokenizer.get("model_max_length"),
    ]
    first = _first_position(config)
    positions, texts = (limit if _is_limit(limit) else None for limit in limits)
    return min(positions or MAX_TOKENS, (texts or MAX_TOKENS) + first, MAX_TOKENS + first)


def _is_limit(value: object) -> bool:
    """Whether a setting limits anything: some files have none, -1, or the largest of floats."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _choose_output(
    values: Mapping[str, NDArray[Any]],
    folder: Path,
    config: Mapping[str, Any],
    pooling: str | None,
    length: int,
) -> tuple[str, list[nn.Module]]:
    """The output to take, and the steps from it to the embedding.

    Args:
        values: The outputs of two texts.
        folder: Folder of the model's files.
        config: The model's configuration.
        pooling: The vendor's choice; None takes that of the files.
        length: Tokens of each text.
    """
    floats = {name: value for name, value in values.items() if value.dtype.kind == "f"}
    embeddings = [
        name for name, value in floats.items()
        if value.shape == (2, value.shape[-1]) and name != _UNTRAINED
    ]  # fmt: skip
    states = [
        name for name, value in floats.items()
        if value.ndim == 3 and value.shape[:2] == (2, length) and name != _SCORES
    ]  # fmt: skip
    states.sort(key=lambda name: name not in _STATES)
    heads = [str(name) for name in config.get("architectures") or () if "For" in str(name)]
    if len(embeddings) > 1 or states or heads:
        embeddings = [name for name in embeddings if name != _SCORES]
    if pooling is None and embeddings:
        steps = read_steps(folder, None, None) or []
        width, around = floats[embeddings[-1]].shape[1], widths(steps)
        if around is None:
            unit = np.abs(np.linalg.norm(floats[embeddings[-1]], axis=1) - 1) < _UNIT
            return embeddings[-1], [] if unit.all() else steps
        before, after = around
        if width == after != before:
            return embeddings[-1], []
        if width == before != after:
            return embeddings[-1], steps
        if not states:
            raise ExportError(
                "the files beside it list steps with weights, and nothing shows whether its "
                "embedding is from before or after them: export the states of the tokens"
            )
    if not states:
        wanted = (
            "the state of each token" if pooling else "an embedding, or the state of each token"
        )
        of_head = f", but those of {heads[0]}" if heads else ""
        raise ExportError(
            f"none of its outputs ({', '.join(values)}) is {wanted}{of_head}: export its features "
            f"({_FEATURES})"
        )
    return states[0], _steps_of_states(folder, config, pooling, floats[states[0]].shape[2])


def _steps_of_states(
    folder: Path, config: Mapping[str, Any], pooling: str | None, width: int
) -> list[nn.Module]:
    """The steps from the states of a text's tokens to its embedding."""
    steps = read_steps(folder, pooling, width)
    if steps is not None:
        return steps
    mode = pooling or read_pooling(folder, Modules(), width)
    if pooling is None and (config.get("is_decoder") or config.get("is_encoder_decoder")):
        raise ExportError(f"{CONFIGURATION} is of a model that decodes: choose with --pooling")
    return [modules.Pooling(width, mode) if isinstance(mode, str) else mode]


def read_tokenizer(path: Path) -> tuple[Tokenizer, int]:
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


def _given(model: ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs of a graph that have no default."""
    defaults = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in defaults]


def _check_inputs(model: ModelProto) -> None:
    """Check that a graph takes what an encoder does, of any length."""
    given = _given(model)
    names = {value.name for value in given}
    if not {_IDS, _MASK} <= names <= _INPUTS:
        raise ExportError(
            f"its inputs are {', '.join(sorted(names))}; those of an encoder are {_IDS}, {_MASK} "
            f"and perhaps {_TYPES} and {_POSITIONS}: export its features, without past keys and "
            f"values ({_FEATURES})"
        )
    for value in given:
        kind = value.type.tensor_type
        if kind.elem_type not in _KINDS:
            name = TensorProto.DataType.Name(kind.elem_type).lower()
            raise ExportError(f"its input {value.name} is of type {name}; it should be int64")
        fixed = [axis.dim_value for axis in kind.shape.dim if axis.HasField("dim_value")]
        if value.name in (_IDS, _MASK) and fixed:
            raise ExportError(
                f"its input {value.name} has an axis of the fixed length {fixed[-1]}: export it "
                "with dynamic axes for the texts and their tokens"
            )


def _open(original: ModelProto, model: ModelProto) -> InferenceSession:
    """Open a file as it is, or in float32 where a processor does not run it in half precision."""
    try:
        return session(original)
    except Exception:  # onnxruntime has no base class for its errors
        try:
            return session(model)
        except Exception as error:
            raise ExportError(f"cannot be run: {first_line(error)}") from error


def _feeds(
    runner: InferenceSession, ids: NDArray[np.int64], first_position: int
) -> dict[str, NDArray[Any]]:
    positions = np.broadcast_to(np.arange(ids.shape[1]) + first_position, ids.shape)
    values = {
        _IDS: ids, _MASK: np.ones_like(ids), _TYPES: np.zeros_like(ids), _POSITIONS: positions
    }  # fmt: skip
    kinds = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}
    return {
        value.name: values[value.name].astype(kinds.get(value.type, np.float32))
        for value in runner.get_inputs()
    }


def _run(
    runner: InferenceSession, ids: NDArray[np.int64], first_position: int
) -> dict[str, NDArray[Any]]:
    """A file's outputs for some tokens, by name."""
    names = [value.name for value in runner.get_outputs()]
    try:
        values = runner.run(None, _feeds(runner, ids, first_position))
    except Exception as error:  # onnxruntime has no base class for its errors
        raise ExportError(
            f"cannot read {ids.shape[1]} tokens of its tokenizer (--max-length gives "
            f"fewer): {first_line(error)}"
        ) from error
    return dict(zip(names, values, strict=True))


def _drop_unused(graph: onnx.GraphProto, output: str) -> None:
    """Drop the nodes that an output does not depend on, such as those of a pooler."""
    needed, kept = {output}, []
    for node in reversed(graph.node):
        if not needed.isdisjoint(node.output):
            kept.append(node)
            needed.update(name for part in _with_inner(node) for name in part.input)
    del graph.node[:]
    graph.node.extend(reversed(kept))


def _rename_inputs(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Let the nodes of a graph, and of those inside, take other values."""
    for node in [part for given in graph.node for part in _with_inner(given)]:
        node.input[:] = [names.get(name, name) for name in node.input]


def _with_inner(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """A node, and those of its inner graphs."""
    yield node
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            for inner in graph.node:
                yield from _with_inner(inner)
