"""A Hugging Face encoder: weights, tokenizer and the pooling that it was trained with."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import click
import numpy as np
import torch
from numpy.typing import NDArray
from onnx import ModelProto
from tokenizers import Tokenizer, normalizers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from fala import Bundle
from fala.bundle.format import MAX_TOKENS
from fala.cli import counted, progress
from fala.examples import tokenizer_inputs
from fala_export.embedding.tokens import embed_tokens, placed
from fala_export.errors import ExportError
from fala_export.models.folder import (
    CONFIGURATION,
    MODULES,
    WEIGHTS,
    check_configuration,
    check_tokenizer,
    check_truncation,
    find_weights,
    loading,
    naming,
    read_modules,
    read_pooling,
    read_sentence_settings,
)
from fala_export.models.hub import HubModel, find_model
from fala_export.models.onnx_graph import check_weights, encoder_graph, weight_bytes
from fala_export.models.sentence_encoder import SentenceEncoder
from fala_export.quiet import quiet, without_bars
from fala_export.settings import FrozenPooling

FAMILY = (
    "albert",
    "bert",
    "camembert",
    "deberta-v2",
    "distilbert",
    "electra",
    "mpnet",
    "roberta",
    "xlm-roberta",
)
"""Model types that read a text in both directions and return one state per token."""

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_LOCAL = {"local_files_only": True, "trust_remote_code": False}
DEFAULT_LENGTH = 128  # enough for headlines, posts and comments; the cost grows with the length


@dataclass(frozen=True)
class Encoder:
    """A loaded encoder and how a text becomes its embedding.

    Attributes:
        module: The transformer with its pooling, in evaluation mode.
        tokenizer: The ``tokenizers`` library's tokenizer as JSON, without truncation and padding.
        pad_id: The padding token's id.
        longest: Most tokens of a text that the model reads: its number of positions, or the lower
            limit in its files.
        revision: Its commit on the hub; None for a folder.
        not_kept: What the model's files say of an embedding and a bundle does not have, a sentence
            by the setting's name.
    """

    module: SentenceEncoder
    tokenizer: bytes
    pad_id: int
    longest: int
    revision: str | None = None
    not_kept: Mapping[str, str] = field(default_factory=dict)

    @property
    def pooling(self) -> str:
        """The pooling of the states of a text's tokens."""
        return self.module.pooling

    @property
    def normalized(self) -> bool:
        """Whether embeddings have length 1."""
        return self.module.normalize

    @property
    def size(self) -> int:
        """Size of the weights in float32, in bytes."""
        return weight_bytes(self.module)

    def graph(self) -> ModelProto:
        """Trace the model, as ``encoder_graph`` does."""
        return encoder_graph(self.module)

    def length(self, wanted: int | None) -> int:
        """Tokens of a text to read: ``wanted``, or by default 128 or the model's most.

        Raises:
            ExportError: It reads fewer than wanted.
        """
        if wanted is None:
            return min(DEFAULT_LENGTH, self.longest)
        if not 0 < wanted <= self.longest:
            raise ExportError(f"the model reads 1 to {self.longest} tokens of a text, not {wanted}")
        return wanted

    def token_ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """The tokens of each text; see ``token_ids``."""
        return token_ids(self.tokenizer, self.pad_id, texts, max_length)

    def encode(
        self,
        texts: Sequence[str],
        max_length: int,
        step: Callable[[int], None] = lambda _: None,
    ) -> NDArray[np.float32]:
        """Embed texts with torch in float32, the reference of every export.

        Args:
            texts: n texts.
            max_length: Tokens of a text that are read.
            step: Called after every batch with its number of texts.

        Returns:
            Shape (n, dim).
        """
        ids = self.token_ids(texts, max_length)
        with placed(self.module):
            return embed_tokens(self.module, ids, self.pad_id, self.module.dimension, step)


def token_ids(
    tokenizer: bytes, pad_id: int, texts: Sequence[str], max_length: int
) -> list[list[int]]:
    """The first ``max_length`` tokens of each text; a padding token for a text without any."""
    reader = Tokenizer.from_str(tokenizer.decode())
    reader.enable_truncation(max_length)
    return [encoding.ids or [pad_id] for encoding in reader.encode_batch(tokenizer_inputs(texts))]


def load_encoder(
    source: str,
    pooling: str | None = None,
    revision: str | None = None,
    *,
    ignore: Collection[str] = (),
    exported: bool = True,
) -> Encoder:
    """Load an encoder of the BERT family from a folder or from the hub.

    A model's own code never runs, and neither does a pickle that holds more than weights.

    Args:
        source: A local folder, or a name on the Hugging Face hub.
        pooling: ``"mean"``, ``"cls"`` or ``"layers"`` (``LayerPooling``); None takes the pooling of
            the model's sentence-transformers files, or the mean if it has none.
        revision: The hub's branch, tag or commit; None takes the newest. A folder has none.
        ignore: Names of settings in the model's files that are left out on purpose; see
            ``ModelSource``.
        exported: Whether the model becomes a bundle, so that its size is limited.

    Raises:
        ExportError: Not an encoder of the family, a missing tokenizer or missing weights,
            no such folder or name, no network, too many weights, or an embedding that cannot be
            exported as the model's files describe it.
    """
    with progress("loading the model"), quiet(), naming(source):
        encoder = _load(source, pooling, revision, ignore, exported)
    _note_unused_cuda()
    return encoder


def _load(
    source: str,
    pooling: str | None,
    revision: str | None,
    ignore: Collection[str],
    exported: bool,
) -> Encoder:
    folder, hub = _find(source, revision)
    modules = read_modules(folder)
    inner = folder / modules.transformer
    check_configuration(inner, FAMILY)
    settings = read_sentence_settings(folder, modules, ignore)
    with loading("configuration"):
        config = AutoConfig.from_pretrained(inner, **_LOCAL)
        dimension, positions = int(config.hidden_size), _positions(config)
        with torch.device("meta"):  # the sizes of the weights alone, before these are read
            weights = weight_bytes(AutoModel.from_config(config))
    if exported:
        check_weights(weights)
    pooler = pooling or read_pooling(folder, modules, dimension)
    check_tokenizer(inner)
    with loading("tokenizer"):
        tokenizer = _load_tokenizer(inner, config, settings.lowercase)
    cut = check_truncation(tokenizer.truncation_side, "its tokenizer", ignore)
    if hub is not None:
        hub.fetch_weights(modules.transformer)
    with loading("weights"), without_bars():
        transformer = _load_weights(inner)
    return Encoder(
        module=SentenceEncoder(transformer, pooler, modules.normalize).eval(),
        tokenizer=tokenizer.backend_tokenizer.to_str().encode(),
        pad_id=int(tokenizer.pad_token_id),
        longest=min(positions, settings.longest or int(tokenizer.model_max_length), MAX_TOKENS),
        revision=None if hub is None else hub.commit,
        not_kept={**settings.not_kept, **cut},
    )


def load_encoder_of(bundle: Bundle, source: str, revision: str | None = None) -> Encoder:
    """Load the encoder that a bundle was exported from, to embed as the bundle does.

    Args:
        bundle: A bundle of a transformer.
        source: As for ``load_encoder``.
        revision: As for ``load_encoder``.

    Raises:
        ExportError: See ``load_encoder``; or the encoder's embeddings have another length.
    """
    details = bundle.manifest.details
    pooling = details.get("pooling")
    # Any other pooling has weights or settings, which the model's own files hold.
    named = pooling if pooling in get_args(FrozenPooling) else None
    not_kept = details.get("not_kept")
    ignore = not_kept if isinstance(not_kept, dict) else ()
    encoder = load_encoder(source, named, revision, ignore=ignore)
    if isinstance(details.get("normalized"), bool):
        encoder.module.normalize = details["normalized"]
    dimension = encoder.module.dimension
    if dimension != bundle.manifest.dimension:
        raise ExportError(
            f"{source}: not the model that {bundle.path} was exported from: it has "
            f"{counted(dimension, 'dimension')}, and the bundle {bundle.manifest.dimension}"
        )
    return encoder


def _note_unused_cuda() -> None:
    """Print a hint where PyTorch has gigabytes of CUDA's libraries, and there is no GPU."""
    if torch.version.cuda is not None and not torch.cuda.is_available():
        click.echo(
            f"this PyTorch is built for CUDA {torch.version.cuda}, and there is no GPU: its CPU "
            "build takes less than a gigabyte (see the selector on pytorch.org)",
            err=True,
        )


def _find(source: str, revision: str | None) -> tuple[Path, HubModel | None]:
    """Find a model's folder, and its entry on the hub unless ``source`` is a folder."""
    folder = Path(source)
    if folder.is_dir():
        if revision is not None:
            raise ExportError("is a folder; only a model on the hub has a revision")
        if not (folder / CONFIGURATION).is_file() and not (folder / MODULES).is_file():
            raise ExportError(f"not a model folder: it has no {CONFIGURATION}")
        return folder, None
    if folder.exists():
        raise ExportError("is a file; give the folder that holds the model")
    if not _HUB_NAME.fullmatch(source):
        raise ExportError("no such folder")
    hub = find_model(source, revision)
    return hub.folder, hub


def _positions(config: PretrainedConfig) -> int:
    """The number of tokens that a model has positions for."""
    positions = int(config.max_position_embeddings)
    if config.model_type in ("roberta", "camembert", "xlm-roberta"):
        return positions - config.pad_token_id - 1  # positions start after the padding token's id
    if config.model_type == "mpnet":
        return positions - 2  # the same, with a fixed id of 1
    return positions


def _load_tokenizer(
    folder: Path, config: PretrainedConfig, lowercase: bool
) -> PreTrainedTokenizerFast:
    """Load a tokenizer whose backend neither truncates nor pads."""
    tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True, **_LOCAL)
    if not tokenizer.is_fast:
        raise ExportError(f"its tokenizer, {type(tokenizer).__name__}, has no tokenizer.json form")
    if tokenizer.pad_token_id is None:
        raise ExportError("its tokenizer has no padding token")
    backend = tokenizer.backend_tokenizer
    ids = backend.get_vocab(with_added_tokens=True)
    last = max(ids, key=ids.__getitem__)
    if ids[last] >= config.vocab_size:
        raise ExportError(
            f"its tokenizer has the token {last!r} with id {ids[last]}, but the model "
            f"has only {config.vocab_size} token embeddings: they do not belong together"
        )
    backend.no_truncation()
    backend.no_padding()
    if lowercase:
        lower_case(backend)
    return tokenizer


def lower_case(tokenizer: Tokenizer) -> None:
    """Let a tokenizer read texts in lower case."""
    normalizer = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *normalizer])


def _load_weights(folder: Path) -> PreTrainedModel:
    """Load a transformer in float32, and check that its weights are complete and finite."""
    path = find_weights(folder)
    try:
        model, report = AutoModel.from_pretrained(
            folder, output_loading_info=True, ignore_mismatched_sizes=True, **_LOCAL
        )
    except Exception as error:  # a pickle may raise anything
        if path.suffix != ".bin":
            raise
        raise ExportError(
            f"{path.name} cannot be read as weights alone, and other content of a pickle "
            f"never runs: save the model as {WEIGHTS[0]}"
        ) from error
    for entry in report["mismatched_keys"]:
        name = entry if isinstance(entry, str) else entry[0]  # older versions add the shapes
        raise ExportError(f"the weights of {name} have another shape than its configuration")
    missing = [name for name in report["missing_keys"] if not name.startswith("pooler.")]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ExportError(f"the weights lack {missing[0]}{more}")
    for name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise ExportError(f"the weights of {name} hold NaN or infinity")
    return model.float()
