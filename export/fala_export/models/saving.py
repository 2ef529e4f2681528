"""Write a model folder as sentence-transformers does."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from fala_export.errors import ExportError
from fala_export.models.encoder import Encoder
from fala_export.models.folder import ATTENTION_TYPE, MODULES, TYPES
from fala_export.models.sentence_encoder import LayerPooling
from fala_export.quiet import without_bars


def save_encoder(encoder: Encoder, folder: Path) -> None:
    """Write a model for ``load_encoder``; without attention, sentence-transformers reads it, too.

    Args:
        encoder: A loaded or trained encoder.
        folder: Created if missing.

    Raises:
        ExportError: The encoder pools several layers, for which no folder has a form.
    """
    module = encoder.module
    if isinstance(module.pooler, LayerPooling):
        raise ExportError("a model that pools several layers cannot be saved as a folder")
    with without_bars():
        module.transformer.save_pretrained(folder)
    tokenizer = Tokenizer.from_str(encoder.tokenizer.decode())
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=tokenizer.id_to_token(encoder.pad_id),
        model_max_length=encoder.longest,
    ).save_pretrained(folder)
    attention = module.pooling == "attention"
    pooling = "1_AttentionPooling" if attention else "1_Pooling"
    (folder / pooling).mkdir(exist_ok=True)
    module.pooler.save(str(folder / pooling))
    steps = [
        ("", f"{TYPES}models.Transformer"),
        (pooling, ATTENTION_TYPE if attention else f"{TYPES}models.Pooling"),
    ]
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
