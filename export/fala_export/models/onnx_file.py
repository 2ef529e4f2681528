"""Load an encoder that another tool exported: an ONNX file, with its model's files next to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto
from onnxruntime import InferenceSession
from sentence_transformers.sentence_transformer import modules

from fala.bundle.format import MAX_TOKENS
from fala_export.base.errors import ExportError
from fala_export.base.quiet import first_line
from fala_export.graph.runtime import session
from fala_export.models.encoder import DEFAULT_LENGTH, Encoder, checked_length
from fala_export.models.exported_graph import (
    GRAPH_INPUTS,
    INPUT_KINDS,
    ExportedGraph,
    run_graph,
)
from fala_export.models.files import ModelFiles
from fala_export.models.folder import (
    CONFIGURATION,
    TOKENIZER,
    naming,
    read_modules,
    read_object,
    read_pooling,
    read_steps,
)
from fala_export.models.onnx_graph import INPUTS
from fala_export.models.onnx_reading import normal_form, read_graph
from fala_export.models.sentence_encoder import LAYERS, Ending
from fala_export.models.tokenizer import check_agreement, read_tokenizer
from fala_export.recipe.settings import ModelSource

_IDS, _MASK = INPUTS
_STATES = ("last_hidden_state", "token_embeddings")
# This output belongs to BERT's pre-training and is hardly ever an encoder's embedding.
_UNTRAINED = "pooler_output"
_SCORES = "logits"  # This is the usual name of a classifier's or a language model's output.
# Models whose positions begin after the padding token's id.
_PAST_PADDING = ("camembert", "mpnet", "roberta", "xlm-roberta")
_UNIT = 1e-3  # Tolerance of an embedding's length when checking whether embeddings are scaled to 1.
_FEATURES = "optimum-cli export onnx --task feature-extraction"


def load_onnx(
    path: Path,
    model: ModelSource,
    pooling: str | None = None,
    max_length: int | None = None,
    tokenizer: Path | None = None,
) -> Encoder:
    """Load an ONNX file that returns a text's embedding, or the states of its tokens.

    The model's files in the same folder, or in the folder above ``onnx``, say how texts are read,
    and how states become an embedding.

    Args:
        path: The file, whose inputs are ``input_ids``, ``attention_mask`` and optionally
            ``token_type_ids`` and ``position_ids``.
        model: The vendor's settings of the model's files.
        pooling: A mode that pools the states of the tokens; if None, the file's last embedding is
            used, or, if it has none, the pooling of the model's files, or the mean.
        max_length: Number of tokens of a text that are read; if None, 128, or the lower limit in
            the model's files.
        tokenizer: The model's ``tokenizer.json``; if None, the file in the same folder is used.

    Raises:
        ExportError: A file cannot be read, the files do not fit together, the graph is not an
            encoder's, or an embedding cannot be exported as the files describe it.
    """
    with naming(str(path)):
        if pooling == LAYERS:
            raise ExportError(
                "an ONNX file does not return inner layers; export the model's folder instead"
            )
        folder = path.parent.parent if path.parent.name == "onnx" else path.parent
        if tokenizer is None:
            places = [place / TOKENIZER[0] for place in (folder, path.parent)]
            tokenizer = next((place for place in places if place.is_file()), None)
        if tokenizer is None:
            raise ExportError(
                f"has no {TOKENIZER[0]} in its folder; save its tokenizer there with "
                "transformers, or name it with --tokenizer"
            )
        files = ModelFiles.read(folder, read_modules(folder), model)
        return _load(path, files, tokenizer, pooling, max_length)


def _load(
    path: Path, files: ModelFiles, tokenizer: Path, pooling: str | None, max_length: int | None
) -> Encoder:
    config = read_object(files.folder / CONFIGURATION) or {}
    reader, pad_id = read_tokenizer(tokenizer)
    beside = read_object(tokenizer.with_name(TOKENIZER[1])) or {}
    check_agreement(reader, beside)
    own = {**(reader.truncation or {}), **beside}
    not_kept = files.not_kept(own.get("truncation_side", own.get("direction")), tokenizer.name)
    reader.no_truncation()
    files.adapt(reader)
    first = _first_position(config)
    most = _most_tokens(config, files.longest, own) - first
    default = min(most, own.get("max_length") or DEFAULT_LENGTH, DEFAULT_LENGTH)
    longest = checked_length(max_length, default, most)
    original = read_graph(path)
    _check_inputs(original)
    model = normal_form(original)
    runner = _open(original, model)
    last = max(reader.get_vocab(with_added_tokens=True).values())
    # The test uses the largest token id at full length: a file that runs these texts runs any text.
    values = run_graph(runner, np.full((2, longest), last), first)
    output, end = _choose_output(values, files, config, pooling, longest)
    files.cut(end)
    return Encoder(
        model=ExportedGraph(model, runner, output, end.eval(), first),
        tokenizer=reader.to_str().encode(),
        pad_id=pad_id,
        longest=longest,
        usual=longest,
        prompt=files.prompt,
        not_kept=not_kept,
    )


def _first_position(config: Mapping[str, Any]) -> int:
    """Return the position of a text's first token, as a model's configuration counts."""
    if config.get("model_type") not in _PAST_PADDING:
        return 0
    return int(config.get("pad_token_id") or 0) + 1


def _most_tokens(
    config: Mapping[str, Any], longest: int | None, tokenizer: Mapping[str, Any]
) -> int:
    """Return the lowest limit of tokens in a model's files, including reserved positions."""
    limits = [
        config.get("max_position_embeddings", config.get("n_positions")),
        longest or tokenizer.get("model_max_length"),
    ]
    first = _first_position(config)
    positions, texts = (limit if _is_limit(limit) else None for limit in limits)
    return min(positions or MAX_TOKENS, (texts or MAX_TOKENS) + first, MAX_TOKENS + first)


def _is_limit(value: object) -> bool:
    """Return whether a setting is a limit: some files have none, -1, or the largest float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _choose_output(
    values: Mapping[str, NDArray[Any]],
    files: ModelFiles,
    config: Mapping[str, Any],
    pooling: str | None,
    length: int,
) -> tuple[str, Ending]:
    """Choose the output to use, and what follows it up to the embedding.

    Args:
        values: The outputs of two texts.
        files: The model's files.
        config: The model's configuration.
        pooling: The vendor's choice; if None, the pooling of the files is used.
        length: Number of tokens of each text.
    """
    folder, listed = files.folder, files.modules
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
                "its model's files list steps with weights, and nothing shows whether its "
                "embedding comes before or after them; export the states of the tokens"
            )
    if not states:
        wanted = (
            "the state of each token" if pooling else "an embedding, or the state of each token"
        )
        of_head = f"; they are those of {heads[0]}" if heads else ""
        raise ExportError(
            f"no output ({', '.join(values)}) is {wanted}{of_head}; export its features "
            f"({_FEATURES})"
        )
    decodes = config.get("is_decoder") or config.get("is_encoder_decoder")
    if pooling is None and not listed.listed and decodes:
        raise ExportError(f"{CONFIGURATION} describes a decoder; choose a pooling with --pooling")
    width = floats[states[0]].shape[2]
    pooler = pooling or read_pooling(folder, listed, width)
    if isinstance(pooler, str):
        pooler = modules.Pooling(width, pooler)
    end = Ending(pooler, width)
    files.finish(end)
    return states[0], end


def _given(model: ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs of a graph that have no default."""
    defaults = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in defaults]


def _check_inputs(model: ModelProto) -> None:
    """Check that a graph has an encoder's inputs, with free lengths."""
    given = _given(model)
    names = {value.name for value in given}
    if not {_IDS, _MASK} <= names <= GRAPH_INPUTS:
        raise ExportError(
            f"its inputs are {', '.join(sorted(names))}, but an encoder's must be {_IDS}, "
            f"{_MASK} and optionally token_type_ids and position_ids; export its features, "
            f"without past keys and values ({_FEATURES})"
        )
    for value in given:
        kind = value.type.tensor_type
        if kind.elem_type not in INPUT_KINDS:
            name = TensorProto.DataType.Name(kind.elem_type).lower()
            raise ExportError(f"its input {value.name} must be of type int64, not {name}")
        fixed = [axis.dim_value for axis in kind.shape.dim if axis.HasField("dim_value")]
        if value.name in (_IDS, _MASK) and fixed:
            raise ExportError(
                f"its input {value.name} has an axis of the fixed length {fixed[-1]}; export it "
                "with dynamic axes for the texts and their tokens"
            )


def _open(original: ModelProto, model: ModelProto) -> InferenceSession:
    """Open a file as it is, or in float32 if the processor does not run it in half precision."""
    try:
        return session(original)
    except Exception:  # onnxruntime has no base class for its errors.
        try:
            return session(model)
        except Exception as error:
            raise ExportError(f"cannot be run: {first_line(error)}") from error
