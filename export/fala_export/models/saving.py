"""Write a model folder as sentence-transformers does."""

from __future__ import annotations

import json
from pathlib import Path

from fala_export.models.encoder import Encoder
from fala_export.models.folder import ATTENTION_TYPE, MODULES, POOLING_MODES, TYPES
from fala_export.models.transformer_files import CONFIGURATION, WEIGHTS

_POOLING, _ATTENTION = "1_Pooling", "1_AttentionPooling"


def save_encoder(encoder: Encoder, folder: Path) -> None:
    """Write a model that ``load_encoder`` reads; sentence-transformers does, but for attention.

    Args:
        encoder: A loaded or trained encoder.
        folder: Made if missing.
    """
    from safetensors.torch import save_file
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    module = encoder.module
    module.transformer.save_pretrained(folder)
    tokenizer = Tokenizer.from_str(encoder.tokenizer.decode())
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=tokenizer.id_to_token(encoder.pad_id),
        model_max_length=encoder.longest,
    ).save_pretrained(folder)
    steps = [("", f"{TYPES}models.Transformer")]
    if module.attention is None:
        name = next(key for key, mode in POOLING_MODES.items() if mode == module.pooling)
        (folder / _POOLING).mkdir(exist_ok=True)
        settings = {"word_embedding_dimension": module.dimension, name: True}
        (folder / _POOLING / CONFIGURATION).write_text(json.dumps(settings))
        steps.append((_POOLING, f"{TYPES}models.Pooling"))
    else:
        (folder / _ATTENTION).mkdir(exist_ok=True)
        save_file(module.attention.state_dict(), folder / _ATTENTION / WEIGHTS[0])
        steps.append((_ATTENTION, ATTENTION_TYPE))
    if module.normalize:
        steps.append(("2_Normalize", f"{TYPES}models.Normalize"))
    (folder / MODULES).write_text(
        json.dumps(
            [
                {"idx": index, "name": str(index), "path": path, "type": kind}
                for index, (path, kind) in enumerate(steps)
            ],
            indent=2,
        )
    )
