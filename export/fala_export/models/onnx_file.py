"""An encoder that was exported elsewhere: one ONNX file, and the files of its model beside it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, compose
from onnxruntime import InferenceSession
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer
from torch import Tensor, nn

from fala.bundle.format import MAX_TOKENS
from fala_export.base.errors import ExportError
from fala_export.base.quiet import first_line
from fala_export.graph.runtime import model_bytes, session
from fala_export.models.encoder import DEFAULT_LENGTH, changed, token_ids
from fala_export.models.folder import (
    CONFIGURATION,
    TOKENIZER,
    Modules,
    SentenceSettings,
    check_truncation,
    naming,
    read_modules,
    read_object,
    read_pooling,
    read_settings,
    read_steps,
)
from fala_export.models.onnx_graph import INPUTS, trace, with_embedding
from fala_export.models.onnx_reading import normal_form, read_graph
from fala_export.models.sentence_encoder import LAYERS, Ending
from fala_export.models.static_table import StaticTable
from fala_export.models.tokenizer import check_agreement, lower_case, put_before

_IDS, _MASK = INPUTS
_TOKENS = "mask"  # given on from the inputs to the end
_TYPES, _POSITIONS = "token_type_ids", "position_ids"
_INPUTS = {_IDS, _MASK, _TYPES, _POSITIONS}
_KINDS = {
    TensorProto.INT64: torch.int64, TensorProto.INT32: torch.int32,
    TensorProto.FLOAT: torch.float32, TensorProto.BOOL: torch.bool,
}  # fmt: skip
_RUN_KINDS = {
    "tensor(int64)": torch.int64, "tensor(int32)": torch.int32, "tensor(float)": torch.float32,
    "tensor(bool)": torch.bool,
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
        revision: None; only a model on the hub has one.
        prompt: The prompt before every text; the tokenizer puts it there.
        end: What follows the graph's output.
        not_kept: As of an ``Encoder``.
        not_layers: As of an ``Encoder``.
        file: As of an ``Encoder``.
        table: Static embeddings as a table, which a device runs in place of the graph; None where
            there is none.
        not_static: Why static embeddings are a graph on a device.
    """

    tokenizer: bytes
    pad_id: int
    longest: int
    end: Ending
    _model: ModelProto
    _session: InferenceSession
    _output: str
    _first_position: int = 0
    revision: None = None
    prompt: str = ""
    not_kept: Mapping[str, str] = field(default_factory=dict)
    not_layers: str = ""
    file: str | None = None
    table: StaticTable | None = None
    not_static: str = ""

    @property
    def pooling(self) -> str:
        """The modes of its pooling; ``"none"`` where a graph pools by itself."""
        return "mean" if self.table is not None or self.not_static else self.end.pooling

    @property
    def normalized(self) -> bool:
        """Whether embeddings have length 1."""
        return self.end.normalize

    @property
    def changed(self) -> dict[str, Any]:
        """As of an ``Encoder``."""
        return changed(self.prompt, self.end.cut)

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
            with torch.inference_mode():
                states, mask = torch.from_numpy(values).float(), torch.ones((1, len(ids)))
                embeddings.append(self.end(states, mask.long()).numpy()[0])
            step(1)
        return np.array(embeddings, dtype=np.float32)

    def graph(self) -> ModelProto:
        """The graph from token ids and mask to ``embedding``, like that of ``encoder_graph``."""
        opset = next(entry.version for entry in self._model.opset_import if not entry.domain)
        ids, mask = (torch.ones((2, 8), dtype=torch.long) for _ in range(2))
        names = [value.name for value in self._model.graph.input]
        kinds = [_KINDS[value.type.tensor_type.elem_type] for value in self._model.graph.input]
        feed = _Feed(names, kinds, self._first_position)
        given = [f"{name}.given" for name in names]
        whole = trace(feed, dict(zip(INPUTS, (ids, mask), strict=True)), [*given, _TOKENS], opset)
        middle = _without_unused(self._model, self._output)
        whole = _joined(whole, middle, dict(zip(given, names, strict=True)), "file.")
        states = torch.ones((2, 8, self.end.width) if self.end.pooler else (2, self.end.width))
        inputs = {"states": states} | ({"mask": mask} if self.end.pooler else {})
        end = trace(self.end, inputs, ["embedding"], opset)
        from_file = {f"file.{self._output}": "states"}
        tokens = {_TOKENS: "mask"} if self.end.pooler else {}
        whole = _joined(whole, end, from_file | tokens, "end.")
        return with_embedding(whole, "end.embedding", self.end.dimension)


class _Feed(nn.Module):
    """What a graph takes, of token ids and their mask; at last the mask itself.

    Args:
        names: Names of the graph's inputs.
        kinds: Their types.
        first_position: The position of a text's first token.
    """

    def __init__(
        self, names: Sequence[str], kinds: Sequence[torch.dtype], first_position: int
    ) -> None:
        super().__init__()
        self.inputs, self.first_position = [*zip(names, kinds, strict=True)], first_position

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """The inputs in their order, and the mask."""
        zeros = ids - ids
        values = {
            _IDS: ids,
            _MASK: mask,
            _TYPES: zeros,  # a single text is all of the first type
            _POSITIONS: (zeros + 1).cumsum(1) + (self.first_position - 1),
        }
        # Not the inputs themselves, which no node returns.
        return (*((values[name] + zeros).to(kind) for name, kind in self.inputs), mask + zeros)


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
        listed = read_modules(folder)
        settings = read_settings(folder, listed)
        text = settings.prompt(prompt, ignore)
        file = _load(path, folder, tokenizer, pooling, max_length, ignore, listed, settings, text)
        file.end.cut = settings.kept_numbers(dimension, file.end.full_dimension, ignore)
        return file


def _load(
    path: Path,
    folder: Path,
    tokenizer: Path,
    pooling: str | None,
    max_length: int | None,
    ignore: Collection[str],
    listed: Modules,
    settings: SentenceSettings,
    prompt: str,
) -> OnnxFile:
    config = read_object(folder / CONFIGURATION) or {}
    reader, pad_id = read_tokenizer(tokenizer)
    beside = read_object(tokenizer.with_name(TOKENIZER[1])) or {}
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
    output, end = _choose_output(values, folder, config, listed, pooling, longest)
    return OnnxFile(
        tokenizer=reader.to_str().encode(),
        pad_id=pad_id,
        longest=longest,
        end=end.eval(),
        _model=model,
        _session=runner,
        _output=output,
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
    listed: Modules,
    pooling: str | None,
    length: int,
) -> tuple[str, Ending]:
    """The output to take, and what follows it up to the embedding.

    Args:
        values: The outputs of two texts.
        folder: Folder of the model's files.
        config: The model's configuration.
        listed: The steps that its files list.
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
        name = embeddings[-1]
        width = floats[name].shape[1]
        steps = read_steps(folder, listed)
        unit = bool((np.abs(np.linalg.norm(floats[name], axis=1) - 1) < _UNIT).all())
        widths = [
            (step.in_features, step.out_features) if isinstance(step, modules.Dense)
            else (step.dimension, step.dimension)
            for step in steps if isinstance(step, modules.Dense | modules.LayerNorm)
        ]  # fmt: skip
        before, after = (widths[0][0], widths[-1][1]) if widths else (0, width)
        if width == after != before:
            scaled = unit or (not widths and listed.normalize)
            return name, Ending(None, width, normalize=scaled)
        if width == before != after:
            return name, Ending(None, width, steps=steps, normalize=listed.normalize)
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
    decodes = config.get("is_decoder") or config.get("is_encoder_decoder")
    if pooling is None and not listed.listed and decodes:
        raise ExportError(f"{CONFIGURATION} is of a model that decodes: choose with --pooling")
    width = floats[states[0]].shape[2]
    pooler = pooling or read_pooling(folder, listed, width)
    if isinstance(pooler, str):
        pooler = modules.Pooling(width, pooler)
    end = Ending(pooler, width, normalize=listed.normalize)
    end.steps.extend(read_steps(folder, listed, end.dimension))
    return states[0], end


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
    inputs = runner.get_inputs()
    names, kinds = [value.name for value in inputs], [_RUN_KINDS[value.type] for value in inputs]
    rows = torch.from_numpy(ids)
    *values, _ = _Feed(names, kinds, first_position)(rows, torch.ones_like(rows))
    return {name: value.numpy() for name, value in zip(names, values, strict=True)}


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


def _without_unused(model: ModelProto, output: str) -> ModelProto:
    """A graph with one of its outputs, without nodes that it does not depend on, as a pooler's."""
    copy = ModelProto()
    copy.CopyFrom(model)
    needed, kept = {output}, []
    for node in reversed(model.graph.node):
        if not needed.isdisjoint(node.output):
            kept.append(node)
            needed.update(name for part in _with_inner(node) for name in part.input)
    del copy.graph.node[:], copy.graph.output[:]
    copy.graph.node.extend(reversed(kept))
    copy.graph.output.extend(value for value in model.graph.output if value.name == output)
    return copy


def _joined(
    first: ModelProto, second: ModelProto, wires: Mapping[str, str], prefix: str
) -> ModelProto:
    """Two graphs as one.

    Args:
        first: Its names stay.
        second: Its names get the prefix.
        wires: Which input of the second takes which output of the first.
        prefix: Before the names of the second.
    """
    wired = [(given, f"{prefix}{taken}") for given, taken in wires.items()]
    second = compose.add_prefix(second, prefix)
    graph = compose.merge_graphs(first.graph, second.graph, wired)
    operators = {entry.domain: entry for entry in [*first.opset_import, *second.opset_import]}
    joined: ModelProto = onnx.helper.make_model(
        graph,
        ir_version=max(first.ir_version, second.ir_version),
        opset_imports=[*operators.values()],
    )
    return joined


def _with_inner(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """A node, and those of its inner graphs."""
    yield node
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            for inner in graph.node:
                yield from _with_inner(inner)
