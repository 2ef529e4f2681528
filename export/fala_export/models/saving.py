"""Write a model folder as sentence-transformers does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from fala_export.base.errors import ExportError
from fala_export.base.quiet import without_bars
from fala_export.models.encoder import Encoder
from fala_export.models.folder import ATTENTION_TYPE, MODULES, PROMPTS, TOKENIZER, TYPES
from fala_export.models.sentence_encoder import LAYERS


def save_encoder(encoder: Encoder, folder: Path) -> None:
    """Write a model for ``load``; without attention, sentence-transformers can also read it.

    Args:
        encoder: A loaded or trained encoder.
        folder: The folder, which is created if it does not exist.

    Raises:
        ExportError: The encoder pools several layers, which no folder can represent.
    """
    module, end = encoder.module, encoder.module.end
    if encoder.pooling == LAYERS:
        raise ExportError("a model that pools several layers cannot be saved as a folder")
    with without_bars():
        module.transformer.save_pretrained(folder)
    # The files are written here, because the library's tokenizer classes change with its version.
    tokenizer = Tokenizer.from_str(encoder.tokenizer.decode())
    tokenizer.save(str(folder / TOKENIZER[0]))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": tokenizer.id_to_token(encoder.pad_id),
        "model_max_length": encoder.longest,
    }
    _write(folder / TOKENIZER[1], settings)
    attention = encoder.pooling == "attention"
    pooling = "1_AttentionPooling" if attention else "1_Pooling"
    (folder / pooling).mkdir(exist_ok=True)
    pooler: Any = end.pooler  # torch does not know modules of sentence-transformers.
    pooler.save(str(folder / pooling))
    steps = [
        ("", f"{TYPES}models.Transformer"),
        (pooling, ATTENTION_TYPE if attention else f"{TYPES}models.Pooling"),
    ]
    for step in end.steps:
        name = f"{len(steps)}_{type(step).__name__}"
        (folder / name).mkdir(exist_ok=True)
        saved: Any = step
        saved.save(str(folder / name))
        steps.append((name, f"{TYPES}models.{type(step).__name__}"))
    if end.normalize:
        steps.append((f"{len(steps)}_Normalize", f"{TYPES}models.Normalize"))
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": kind}
        for index, (path, kind) in enumerate(steps)
    ]
    _write(folder / MODULES, modules)
    if end.cut is not None:
        _write(folder / PROMPTS, {"truncate_dim": end.cut})


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2))
