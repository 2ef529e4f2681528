"""Read a Hugging Face encoder: weights, tokenizer and the pooling that it was trained with."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fala.errors import ExportError

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

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
"""Model types that read a text both ways and give one state a token."""

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_BATCH = 32


@dataclass(frozen=True)
class Encoder:
    """A loaded encoder and how a text becomes its embedding.

    Attributes:
        model: The ``transformers`` model, in evaluation mode.
        tokenizer: The ``tokenizers`` library's tokenizer as JSON, neither cutting nor padding.
        pad_id: The padding token's id.
        longest: Most tokens that the model has positions for.
        pooling: ``"mean"`` or ``"cls"``.
        normalize: Whether the embedding is scaled to length 1.
    """

    model: PreTrainedModel
    tokenizer: bytes
    pad_id: int
    longest: int
    pooling: str
    normalize: bool

    def encode(self, texts: Sequence[str], max_length: int) -> NDArray[np.float32]:
        """Embed texts with torch in float32: what every export is compared with.

        Args:
            texts: n texts.
            max_length: Tokens of a text that are read.

        Returns:
            Shape (n, dim).
        """
        import torch
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_str(self.tokenizer.decode())
        tokenizer.enable_truncation(max_length)
        tokenizer.enable_padding(pad_id=self.pad_id)
        parts = []
        for start in range(0, len(texts), _BATCH):
            batch = tokenizer.encode_batch(list(texts[start : start + _BATCH]))
            mask = torch.tensor([encoding.attention_mask for encoding in batch])
            with torch.inference_mode():
                hidden = self.model(
                    input_ids=torch.tensor([encoding.ids for encoding in batch]),
                    attention_mask=mask,
                ).last_hidden_state
                weight = mask.unsqueeze(-1).to(hidden.dtype)
                pooled = (
                    hidden[:, 0]
                    if self.pooling == "cls"
                    else (hidden * weight).sum(1) / weight.sum(1)
                )
                if self.normalize:
                    pooled = torch.nn.functional.normalize(pooled, dim=1)
            parts.append(pooled.numpy())
        return np.concatenate(parts)


def load_encoder(source: str, pooling: str | None) -> Encoder:
    """Load an encoder of the BERT family from a folder or from the hub.

    Args:
        source: A local folder, or a name on the Hugging Face hub.
        pooling: ``"mean"`` or ``"cls"``; None takes what the model's sentence-transformers
            configuration says, and the mean if it has none.

    Raises:
        ExportError: Not an encoder of the family, a missing tokenizer or missing weights,
            no such folder or name, no network, or pooling that cannot be exported.
    """
    from transformers import AutoConfig, AutoModel
    from transformers.utils import logging

    if not Path(source).is_dir() and not _HUB_NAME.fullmatch(source):
        raise ExportError(f"{source}: no such folder")
    if Path(source).is_dir() and not Path(source, "config.json").is_file():
        raise ExportError(f"{source}: not a model folder: it has no config.json")
    with _loading(source, "configuration"):
        config = AutoConfig.from_pretrained(source)
    if config.model_type not in FAMILY or getattr(config, "is_decoder", False):
        raise ExportError(
            f"{source}: a {config.model_type} model is not an encoder of the BERT family "
            f"({', '.join(FAMILY)})"
        )
    declared, normalize = _sentence_transformers(source)
    with _loading(source, "tokenizer"):
        tokenizer, pad_id, longest = _tokenizer(source, config)
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # it warns of a missing pooler, which is never used
    try:
        with _loading(source, "weights"):
            model, report = AutoModel.from_pretrained(source, output_loading_info=True)
    finally:
        logging.set_verbosity(verbosity)
    missing = [name for name in report["missing_keys"] if not name.startswith("pooler.")]
    if missing:
        raise ExportError(f"{source}: the weights lack {missing[0]} and {len(missing) - 1} more")
    return Encoder(
        model=model.float().eval(),
        tokenizer=tokenizer,
        pad_id=pad_id,
        longest=longest,
        pooling=pooling or declared,
        normalize=normalize,
    )


@contextlib.contextmanager
def _loading(source: str, part: str) -> Iterator[None]:
    """Turn whatever transformers raises for a bad or unreachable model into one line."""
    try:
        yield
    except ExportError:
        raise
    except Exception as error:  # OSError, ValueError, KeyError, safetensors' and tokenizers' own
        lines = str(error).strip().splitlines() or [type(error).__name__]
        where = "" if Path(source).is_dir() else " (neither a folder here, nor on the hub)"
        raise ExportError(f"{source}{where}: cannot load its {part}: {lines[0]}") from error


def _tokenizer(source: str, config: PretrainedConfig) -> tuple[bytes, int, int]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, use_fast=True)
    if not tokenizer.is_fast:
        raise ExportError(f"{source}: its tokenizer has no tokenizer.json form")
    if tokenizer.pad_token_id is None:
        raise ExportError(f"{source}: its tokenizer has no padding token")
    longest = int(config.max_position_embeddings)
    if config.model_type in ("roberta", "camembert", "xlm-roberta", "mpnet"):
        longest -= 2  # these count positions from two, after the padding token's
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    return backend.to_str().encode(), int(tokenizer.pad_token_id), longest


def _sentence_transformers(source: str) -> tuple[str, bool]:
    """Read pooling and normalization from the files of sentence-transformers, where present."""
    modules = _json_file(source, "modules.json")
    if not isinstance(modules, list):
        return "mean", False
    kinds = {str(module["type"]).rpartition(".")[2]: module for module in modules}
    if unknown := sorted(set(kinds) - {"Transformer", "Pooling", "Normalize"}):
        raise ExportError(f"{source}: modules.json names {unknown[0]}, which cannot be exported")
    pooling = "mean"
    if "Pooling" in kinds:
        settings = _json_file(source, f"{kinds['Pooling']['path']}/config.json")
        modes = settings if isinstance(settings, dict) else {}
        chosen = [name for name, on in modes.items() if name.startswith("pooling_mode_") and on]
        known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
        if len(chosen) != 1 or chosen[0] not in known:
            raise ExportError(
                f"{source}: pooling by {', '.join(chosen) or 'nothing'} cannot be exported; "
                "mean and cls can"
            )
        pooling = known[chosen[0]]
    return pooling, "Normalize" in kinds


def _json_file(source: str, name: str) -> object:
    from transformers.utils import cached_file

    with _loading(source, name):
        path = cached_file(
            source,
            name,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
        return None if path is None else json.loads(Path(path).read_text(encoding="utf-8"))
