"""Load a transformer of any family, with its weights, tokenizer and pooling."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
    PretrainedConfig,
    PreTrainedModel,
)

from fala.bundle.format import MAX_TOKENS
from fala.cli import progress
from fala_export.base.errors import ExportError
from fala_export.base.quiet import first_line, quiet, without_bars
from fala_export.models.encoder import Encoder
from fala_export.models.files import ModelFiles
from fala_export.models.folder import (
    ADAPTER,
    CONFIGURATION,
    MODULES,
    WEIGHTS,
    check_configuration,
    find_weights,
    naming,
    read_modules,
    read_pooling,
    reading_part,
)
from fala_export.models.hub import HubModel, find_model
from fala_export.models.onnx_graph import check_weights, weight_bytes
from fala_export.models.sentence_encoder import (
    LAYERS,
    AttentionPooling,
    SentenceEncoder,
    has_layers,
    keep_layers,
    state_width,
)
from fala_export.models.tokenizer import load_tokenizer
from fala_export.recipe.settings import ExportOptions, HubName, ModelSource

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_LOCAL = {"local_files_only": True, "trust_remote_code": False}
# Names of the tables of learned positions: "position_embeddings", "wpe".
_TABLE = re.compile(r"(^|\.)(\w*positions?(_embeddings?)?|wpe)$")


def load_transformer(
    model: ModelSource, pooling: str | None, options: ExportOptions, seed: int = 0
) -> Encoder:
    """Load an encoder of any family of ``transformers`` from a folder or from the hub.

    A model's own code never runs, and neither does a pickle that contains more than weights.

    Args:
        model: A folder, or a name on the hub, with settings of the model's files.
        pooling: The pooling; see ``load``.
        options: The options of a later export; see ``load``.
        seed: The seed of an untrained attention; see ``load``.

    Raises:
        ExportError: The model does not read texts, its tokenizer or weights are missing, the folder
            or name does not exist, there is no network, the weights are too large, the model has
            fewer layers than requested, or an embedding cannot be exported as the model's files
            describe it.
    """
    own = "own" if pooling in (None, "attention") else pooling
    with progress("loading the model"), quiet(), naming(str(model.source)):
        encoder = _load(model, str(own))
    _note_unused_cuda()
    if pooling == "attention":
        return attentive(encoder, seed)
    return encoder if pooling else _with_layers(encoder, options)


def _load(model: ModelSource, pooling: str) -> Encoder:
    folder, hub = _find(model.source, model.revision)
    modules = read_modules(folder) if hub is None else hub.modules
    inner = folder / modules.transformer
    check_configuration(inner)
    files = ModelFiles.read(folder, modules, model)
    with reading_part("configuration"):
        config = AutoConfig.from_pretrained(inner, **_LOCAL)
        config.use_cache = False  # A model that writes would also return its cache.
        shortened = model.layers is not None and keep_layers(config, model.layers)
        # An encoder that was saved alone is recognized only by its class.
        names = config.architectures or ()
        halved = config.is_encoder_decoder or any(name.endswith("EncoderModel") for name in names)
        kind = AutoModelForTextEncoding if halved else AutoModel
        skeleton = _skeleton(kind, config)
        positions = _positions(skeleton)
        embeddings = skeleton.get_input_embeddings().num_embeddings
        width = state_width(skeleton)
        weights = weight_bytes(skeleton)
    check_weights(weights)
    pooler = read_pooling(folder, modules, width) if pooling == "own" else pooling
    reader = load_tokenizer(inner, config.get_text_config().pad_token_id, embeddings)
    not_kept = files.not_kept(reader.truncation_side, "its tokenizer")
    files.adapt(reader.tokenizer)
    if hub is not None:
        hub.fetch_weights()
    with reading_part("weights"), without_bars():
        transformer = _load_weights(inner, kind, config)
    if (shortened or pooling == LAYERS) and not has_layers(transformer):
        raise ExportError(
            f"a {config.model_type} model does not return the states of each layer; use "
            "--pooling own, without --layers"
        )
    if pooling == "own" and not modules.listed and reads_forwards(transformer):
        raise ExportError(
            f"a {config.model_type} model reads a text from left to right, and its files name no "
            "pooling; choose a pooling with --pooling, such as lasttoken"
        )
    module = SentenceEncoder(transformer, pooler)
    if pooling == LAYERS and modules.after:
        raise ExportError(
            f"{modules.after[0][0]} follows the model's own pooling; use --pooling own instead "
            f"of {pooling}"
        )
    files.finish(module.end)
    if pooling == LAYERS and module.end.cut is not None:
        raise ExportError(
            f"embeddings can be cut to {module.end.cut} dimensions only with the model's own "
            f"pooling; use --pooling own instead of {pooling}, or no --dim; --ignore "
            "truncate_dim omits the setting of its files"
        )
    return Encoder(
        model=module.eval(),
        tokenizer=reader.tokenizer.to_str().encode(),
        pad_id=reader.pad_id,
        longest=min(
            limit for limit in (positions, files.longest or reader.longest, MAX_TOKENS)
            if limit is not None
        ),
        revision=None if hub is None else hub.commit,
        prompt=files.prompt,
        not_kept=not_kept,
    )  # fmt: skip


def _skeleton(kind: Any, config: PretrainedConfig) -> PreTrainedModel:  # noqa: ANN401
    """Build a model without weights, to know their sizes before they are read."""
    try:
        with torch.device("meta"):
            return kind.from_config(config)
    except ValueError as error:
        raise ExportError(
            f"transformers has no {config.model_type} model that turns a text into states "
            f"({first_line(error)[:80]}); export it to ONNX with its pooling, and use that file"
        ) from error


def reads_forwards(transformer: PreTrainedModel) -> bool:
    """Return whether a token's state depends only on the tokens before it."""
    ids = torch.tensor([[0, 0], [0, 1]])
    with torch.inference_mode():
        states = transformer(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    return bool(torch.allclose(states[0, 0], states[1, 0], atol=1e-6))


def _with_layers(encoder: Encoder, options: ExportOptions) -> Encoder:
    """Pool three layers of a loaded encoder, unless something needs its own pooling."""
    module = encoder.module
    reason = ""
    if options.adapters:
        reason = "adapters need the last layer"
    elif len(module.end.steps):
        reason = f"{type(module.end.steps[0]).__name__} follows the model's own pooling"
    elif module.end.cut is not None:
        reason = "embeddings that are cut are the model's own"
    elif not has_layers(module.transformer):
        reason = "its layers' states are not returned"
    elif reads_forwards(module.transformer):
        reason = "the model reads a text from left to right"
    if reason:
        return replace(encoder, not_layers=reason)
    return replace(encoder, model=module.pooled_by(LAYERS))


def attentive(encoder: Encoder, seed: int) -> Encoder:
    """Pool an encoder by attention.

    The attention starts as the mean, because a query of zeros gives all tokens the same weight. An
    encoder that already pools by attention is returned unchanged.

    Args:
        encoder: A loaded encoder.
        seed: Seed for the attention's other weights.
    """
    if encoder.pooling == "attention":
        return encoder
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        attention = AttentionPooling(encoder.module.end.width)
    with torch.no_grad():
        attention.query.zero_()
    return replace(encoder, model=encoder.module.pooled_by(attention))


def _note_unused_cuda() -> None:
    """Print a hint if PyTorch includes gigabytes of CUDA libraries but there is no GPU."""
    if torch.version.cuda is not None and not torch.cuda.is_available():
        click.echo(
            f"this PyTorch is built for CUDA {torch.version.cuda}, but there is no GPU; its CPU "
            "build takes less than a gigabyte (see the selector on pytorch.org)",
            err=True,
        )


def _find(source: str, revision: str | None) -> tuple[Path, HubModel | None]:
    """Find a model's folder, and its entry on the hub unless ``source`` is a folder."""
    folder, is_here = Path(source), not isinstance(source, HubName)
    if is_here and folder.is_dir():
        if revision is not None:
            raise ExportError("is a folder; only a model on the hub has a revision")
        if not any((folder / name).is_file() for name in (CONFIGURATION, MODULES, ADAPTER)):
            raise ExportError(f"not a model folder: it has no {CONFIGURATION}")
        return folder, None
    if is_here and folder.exists():
        raise ExportError("is a file; name the folder that contains the model")
    if not _HUB_NAME.fullmatch(source):
        raise ExportError("no such folder")
    hub = find_model(source, revision)
    return hub.folder, hub


def _positions(model: PreTrainedModel) -> int | None:
    """Return the number of tokens that a model has positions for; None without a limit.

    If a table of positions has a row for the padding token, positions begin after that row, and the
    rows before are unused. Without a table, as in models that rotate their states, the
    configuration's number counts.
    """
    tables = [
        module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and _TABLE.search(name)
    ]
    config = model.config.get_text_config()
    stated = getattr(config, "max_position_embeddings", None)
    return min(tables) if tables else stated if isinstance(stated, int) and stated > 0 else None


def _load_weights(folder: Path, kind: Any, config: PretrainedConfig) -> PreTrainedModel:  # noqa: ANN401
    """Load a transformer in float32, and check that its weights are complete and finite."""
    path = find_weights(folder)
    try:
        model, report = kind.from_pretrained(
            folder, config=config, output_loading_info=True, ignore_mismatched_sizes=True, **_LOCAL
        )
    except Exception as error:  # A pickle may raise anything.
        if path.suffix != ".bin":
            raise
        raise ExportError(
            f"{path.name} cannot be read as weights alone, and other content of a pickle is "
            f"never run; save the model as {WEIGHTS[0]}"
        ) from error
    for entry in report["mismatched_keys"]:
        name = entry if isinstance(entry, str) else entry[0]  # Older versions add the shapes.
        raise ExportError(f"the weights of {name} have another shape than its configuration says")
    missing = [name for name in report["missing_keys"] if not name.startswith("pooler.")]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ExportError(f"the weights lack {missing[0]}{more}")
    for name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise ExportError(f"the weights of {name} must be finite, but contain NaN or infinity")
    return model.float()
