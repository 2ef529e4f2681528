"""A Hugging Face encoder: weights, tokenizer and the pooling that it was trained with."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import click
import numpy as np
import torch
from numpy.typing import NDArray
from onnx import ModelProto
from tokenizers import Tokenizer
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
    PretrainedConfig,
    PreTrainedModel,
)

from fala import Bundle
from fala.base.errors import counted
from fala.base.examples import tokenizer_inputs
from fala.bundle.format import MAX_TOKENS, TOKENIZER
from fala.cli import progress
from fala_export.base.errors import ExportError
from fala_export.base.quiet import first_line, quiet, without_bars
from fala_export.embedding.tokens import embed_tokens, placed
from fala_export.models.folder import (
    ADAPTER,
    CONFIGURATION,
    MODULES,
    WEIGHTS,
    check_configuration,
    check_truncation,
    find_weights,
    naming,
    read_modules,
    read_pooling,
    read_settings,
    read_steps,
    reading_part,
)
from fala_export.models.hub import HubModel, find_model
from fala_export.models.onnx_graph import check_weights, encoder_graph, weight_bytes
from fala_export.models.sentence_encoder import (
    LAYERS,
    SentenceEncoder,
    has_layers,
    keep_layers,
    state_width,
)
from fala_export.models.tokenizer import load_tokenizer, lower_case, put_before
from fala_export.models.vocabulary import (
    keep_tokens,
    same_tokens,
    trim_vocabulary,
    used_tokens,
)
from fala_export.recipe.settings import FrozenPooling, HubName

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_LOCAL = {"local_files_only": True, "trust_remote_code": False}
# Names of the tables of learned positions: "position_embeddings", "wpe".
_TABLE = re.compile(r"(^|\.)(\w*positions?(_embeddings?)?|wpe)$")
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
        prompt: What the tokenizer puts before every text; empty for nothing.
        not_kept: What the model's files say of an embedding and a bundle does not have, a sentence
            by the setting's name.
        tokens: Tokens of a trimmed vocabulary; None for a whole one.
        not_layers: Why its own pooling is taken and not three layers; empty where it was asked for.
        file: The file in its folder that was read, where the folder has graphs, too.
    """

    module: SentenceEncoder
    tokenizer: bytes
    pad_id: int
    longest: int
    revision: str | None = None
    prompt: str = ""
    not_kept: Mapping[str, str] = field(default_factory=dict)
    tokens: int | None = None
    not_layers: str = ""
    file: str | None = None

    @property
    def pooling(self) -> str:
        """The pooling of the states of a text's tokens."""
        return self.module.end.pooling

    @property
    def normalized(self) -> bool:
        """Whether embeddings have length 1."""
        return self.module.end.normalize

    @property
    def changed(self) -> dict[str, Any]:
        """Details of its embeddings: ``layers``, those that are pooled; see ``changed``.

        And ``tokens`` of a trimmed vocabulary.
        """
        tokens = {} if self.tokens is None else {"tokens": self.tokens}
        return {"layers": self.module.layers, **changed(self.prompt, self.module.end.cut), **tokens}

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
            return embed_tokens(self.module, ids, self.pad_id, self.module.end.dimension, step)


def trim_encoder(encoder: Encoder, texts: Iterable[str]) -> Encoder:
    """Drop the tokens that some texts do not use from the tokenizer and the embedding matrix.

    Args:
        encoder: A loaded encoder; it stays as it is.
        texts: The texts; their embeddings do not change.

    Raises:
        ExportError: See ``trim_vocabulary``.
    """
    used = used_tokens(encoder.tokenizer, texts) | {encoder.pad_id}
    return _with_tokens(encoder, *trim_vocabulary(encoder.tokenizer, used))


def _with_tokens(encoder: Encoder, tokenizer: bytes, old_ids: list[int]) -> Encoder:
    """A copy with some tokens alone, in the order of their new ids."""
    module, pad_id = copy.deepcopy(encoder.module), old_ids.index(encoder.pad_id)
    keep_tokens(module.transformer, old_ids, pad_id)
    return replace(encoder, module=module, tokenizer=tokenizer, pad_id=pad_id, tokens=len(old_ids))


def changed(prompt: str, cut: int | None) -> dict[str, Any]:
    """The manifest's details of a prompt and a cut, where there are."""
    return ({"prompt": prompt} if prompt else {}) | ({} if cut is None else {"cut": cut})


def token_ids(
    tokenizer: bytes, pad_id: int, texts: Sequence[str], max_length: int
) -> list[list[int]]:
    """The first ``max_length`` tokens of each text; a padding token for a text without any."""
    reader = Tokenizer.from_str(tokenizer.decode())
    reader.enable_truncation(max_length)
    return [encoding.ids or [pad_id] for encoding in reader.encode_batch(tokenizer_inputs(texts))]


def load_encoder(
    source: str,
    pooling: str = "own",
    revision: str | None = None,
    *,
    ignore: Collection[str] = (),
    prompt: str | None = None,
    dimension: int | None = None,
    layers: int | None = None,
) -> Encoder:
    """Load an encoder of any family of ``transformers`` from a folder or from the hub.

    A model's own code never runs, and neither does a pickle that holds more than weights.

    Args:
        source: A local folder, or a name on the Hugging Face hub.
        pooling: ``"own"``, the pooling of the model's sentence-transformers files, or the mean if
            it has none; a mode of sentence-transformers, such as ``"mean"``; or ``"layers"`` or
            ``"layers+max"`` (``LayerPooling``).
        revision: The hub's branch, tag or commit; None takes the newest. A folder has none.
        ignore: Names of settings in the model's files that are left out on purpose; see
            ``ModelSource``.
        prompt: Name of the prompt in the model's files that is put before every text; None takes
            the default one, if they have one.
        dimension: Numbers of an embedding that are kept; None keeps as many as the files say.
        layers: Layers that are kept, the first ones; None keeps all.

    Raises:
        ExportError: No model that reads texts, a missing tokenizer or missing weights,
            no such folder or name, no network, too many weights, not so many layers, or an
            embedding that cannot be exported as the model's files describe it.
    """
    with progress("loading the model"), quiet(), naming(source):
        encoder = _load(source, pooling, revision, ignore, prompt, dimension, layers)
    _note_unused_cuda()
    return encoder


def _load(
    source: str,
    pooling: str,
    revision: str | None,
    ignore: Collection[str],
    prompt: str | None,
    dimension: int | None,
    layers: int | None,
) -> Encoder:
    folder, hub = _find(source, revision)
    modules = read_modules(folder)
    inner = folder / modules.transformer
    check_configuration(inner)
    settings = read_settings(folder, modules)
    with reading_part("configuration"):
        config = AutoConfig.from_pretrained(inner, **_LOCAL)
        config.use_cache = False  # of a model that writes: it would return its memory, too
        shortened = layers is not None and keep_layers(config, layers)
        # An encoder that was saved alone says so by its class only.
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
    cut = check_truncation(reader.truncation_side, "its tokenizer", ignore)
    if settings.lowercase:
        lower_case(reader.tokenizer)
    text = settings.prompt(prompt, ignore)
    if text:
        put_before(reader.tokenizer, text)
    if hub is not None:
        hub.fetch_weights(modules.transformer)
    with reading_part("weights"), without_bars():
        transformer = _load_weights(inner, kind, config)
    if (shortened or pooling == LAYERS) and not has_layers(transformer):
        raise ExportError(
            f"a {config.model_type} model does not return the states of its layers one by one: "
            "choose --pooling own, without --layers"
        )
    if pooling == "own" and not modules.listed and reads_forwards(transformer):
        raise ExportError(
            f"a {config.model_type} model reads a text from left to right, and its files name no "
            "pooling: choose with --pooling, such as lasttoken"
        )
    module = SentenceEncoder(transformer, pooler, modules.normalize)
    if pooling == LAYERS and modules.after:
        raise ExportError(
            f"{modules.after[0][0]} follows its own pooling: choose --pooling own in place of "
            f"{pooling}"
        )
    end = module.end
    end.steps.extend(read_steps(folder, modules, end.dimension))
    end.cut = settings.kept_numbers(dimension, end.full_dimension, ignore)
    if pooling == LAYERS and end.cut is not None:
        raise ExportError(
            f"embeddings are cut to {end.cut} numbers with its own pooling alone: choose "
            f"--pooling own in place of {pooling}, or no --dim; --ignore truncate_dim leaves the "
            "setting of its files out"
        )
    return Encoder(
        module=module.eval(),
        tokenizer=reader.tokenizer.to_str().encode(),
        pad_id=reader.pad_id,
        longest=min(
            limit for limit in (positions, settings.longest or reader.longest, MAX_TOKENS)
            if limit is not None
        ),
        revision=None if hub is None else hub.commit,
        prompt=text,
        not_kept={**settings.left_out(text, ignore), **cut},
    )  # fmt: skip


def _skeleton(kind: Any, config: PretrainedConfig) -> PreTrainedModel:  # noqa: ANN401
    """A model without weights, for their sizes before they are read."""
    try:
        with torch.device("meta"):
            return kind.from_config(config)
    except ValueError as error:
        raise ExportError(
            f"transformers has no {config.model_type} model that turns a text into states "
            f"({first_line(error)[:80]}): export it to ONNX with its pooling, and give that file"
        ) from error


def reads_forwards(transformer: PreTrainedModel) -> bool:
    """Whether a token's state depends on the tokens before it alone."""
    ids = torch.tensor([[0, 0], [0, 1]])
    with torch.inference_mode():
        states = transformer(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    return bool(torch.allclose(states[0, 0], states[1, 0], atol=1e-6))


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
    named = str(pooling) if pooling in get_args(FrozenPooling) else "own"
    not_kept, cut, layers = (details.get(name) for name in ("not_kept", "cut", "layers"))
    not_kept = not_kept if isinstance(not_kept, dict) else {}
    encoder = load_encoder(
        source, named, revision, ignore=[*not_kept, "prompts"],
        dimension=cut if isinstance(cut, int) else None,
        layers=max(layers) if isinstance(layers, list) and layers else None,
    )  # fmt: skip
    # The bundle's tokenizer has the prompt, too.
    tokenizer, prompt = bundle.read(TOKENIZER), str(details.get("prompt") or "")
    if isinstance(details.get("tokens"), int):
        with naming(source):
            old_ids = same_tokens(encoder.tokenizer, tokenizer, encoder.pad_id)
            encoder = _with_tokens(encoder, tokenizer, old_ids)
    encoder = replace(encoder, tokenizer=tokenizer, prompt=prompt, not_kept=not_kept)
    if isinstance(details.get("normalized"), bool):
        encoder.module.end.normalize = details["normalized"]
    dimension = encoder.module.end.dimension
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
    folder, is_here = Path(source), not isinstance(source, HubName)
    if is_here and folder.is_dir():
        if revision is not None:
            raise ExportError("is a folder; only a model on the hub has a revision")
        if not any((folder / name).is_file() for name in (CONFIGURATION, MODULES, ADAPTER)):
            raise ExportError(f"not a model folder: it has no {CONFIGURATION}")
        return folder, None
    if is_here and folder.exists():
        raise ExportError("is a file; give the folder that holds the model")
    if not _HUB_NAME.fullmatch(source):
        raise ExportError("no such folder")
    hub = find_model(source, revision)
    return hub.folder, hub


def _positions(model: PreTrainedModel) -> int | None:
    """The number of tokens that a model has positions for; None without a limit.

    A table of positions that has a padding token's begins after that: its first rows are unused.
    Without a table, as of models that rotate their states, the configuration's number counts.
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
