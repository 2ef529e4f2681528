"""A Hugging Face encoder: weights, tokenizer and the pooling that it was trained with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fala.errors import ExportError
from fala_export.model_folder import loading, read_pooling

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

    from fala_export.sentence_encoder import SentenceEncoder

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
        module: The transformer with its pooling, in evaluation mode.
        tokenizer: The ``tokenizers`` library's tokenizer as JSON, neither cutting nor padding.
        pad_id: The padding token's id.
        longest: Most tokens that the model has positions for.
        revision: The hub's commit that it came from; None for a folder.
    """

    module: SentenceEncoder
    tokenizer: bytes
    pad_id: int
    longest: int
    revision: str | None = None

    def batches(
        self, texts: Sequence[str], max_length: int
    ) -> Iterator[tuple[list[int], torch.Tensor, torch.Tensor]]:
        """Tokenize texts, in batches of similar length so that little is spent on padding.

        Args:
            texts: n texts.
            max_length: Tokens of a text that are read.

        Yields:
            The texts' indices, their token ids and the mask of a batch.
        """
        import torch
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_str(self.tokenizer.decode())
        tokenizer.enable_truncation(max_length)
        encodings = tokenizer.encode_batch(list(texts))
        order = sorted(range(len(texts)), key=lambda index: len(encodings[index].ids))
        for start in range(0, len(order), _BATCH):
            chosen = order[start : start + _BATCH]
            length = max(1, *(len(encodings[index].ids) for index in chosen))
            ids = torch.full((len(chosen), length), self.pad_id)
            mask = torch.zeros_like(ids)
            for row, index in enumerate(chosen):
                tokens = encodings[index].ids or [self.pad_id]
                ids[row, : len(tokens)] = torch.tensor(tokens)
                mask[row, : len(tokens)] = 1
            yield chosen, ids, mask

    def encode(self, texts: Sequence[str], max_length: int) -> NDArray[np.float32]:
        """Embed texts with torch in float32: what every export is compared with.

        Args:
            texts: n texts.
            max_length: Tokens of a text that are read.

        Returns:
            Shape (n, dim).
        """
        import torch

        result = np.empty((len(texts), self.module.dimension), dtype=np.float32)
        with torch.inference_mode():
            for chosen, ids, mask in self.batches(texts, max_length):
                result[chosen] = self.module(ids, mask).numpy()
        return result


def load_encoder(source: str, pooling: str | None = None, revision: str | None = None) -> Encoder:
    """Load an encoder of the BERT family from a folder or from the hub.

    Args:
        source: A local folder, or a name on the Hugging Face hub.
        pooling: ``"mean"`` or ``"cls"``; None takes what the model's sentence-transformers
            configuration says, and the mean if it has none.
        revision: The hub's branch, tag or commit; None takes the newest. A folder has none.

    Raises:
        ExportError: Not an encoder of the family, a missing tokenizer or missing weights,
            no such folder or name, no network, or pooling that cannot be exported.
    """
    from transformers import AutoConfig, AutoModel
    from transformers.utils import logging

    from fala_export.sentence_encoder import SentenceEncoder

    if not Path(source).is_dir() and not _HUB_NAME.fullmatch(source):
        raise ExportError(f"{source}: no such folder")
    if Path(source).is_dir() and not Path(source, "config.json").is_file():
        raise ExportError(f"{source}: not a model folder: it has no config.json")
    if Path(source).is_dir() and revision is not None:
        raise ExportError(f"{source}: is a folder; only a model on the hub has a revision")
    with loading(source, "configuration"):
        config = AutoConfig.from_pretrained(source, revision=revision)
    if config.model_type not in FAMILY or getattr(config, "is_decoder", False):
        raise ExportError(
            f"{source}: a {config.model_type} model is not an encoder of the BERT family "
            f"({', '.join(FAMILY)})"
        )
    # The configuration's commit pins the other files, should the branch move meanwhile.
    commit = getattr(config, "_commit_hash", None) or revision
    declared, normalize = read_pooling(source, commit, int(config.hidden_size))
    with loading(source, "tokenizer"):
        tokenizer, pad_id, longest = _tokenizer(source, commit, config)
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # it warns of a missing pooler, which is never used
    try:
        with loading(source, "weights"):
            model, report = AutoModel.from_pretrained(
                source, revision=commit, output_loading_info=True
            )
    finally:
        logging.set_verbosity(verbosity)
    missing = [name for name in report["missing_keys"] if not name.startswith("pooler.")]
    if missing:
        raise ExportError(f"{source}: the weights lack {missing[0]} and {len(missing) - 1} more")
    return Encoder(
        module=SentenceEncoder(model.float(), pooling or declared, normalize).eval(),
        tokenizer=tokenizer,
        pad_id=pad_id,
        longest=longest,
        revision=commit,
    )


def _tokenizer(
    source: str, revision: str | None, config: PretrainedConfig
) -> tuple[bytes, int, int]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, use_fast=True, revision=revision)
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
