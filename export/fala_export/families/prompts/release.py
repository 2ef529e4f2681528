"""Write and read a model folder with its prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_weights
from safetensors.torch import save

from fala.examples import CLASSIFICATION
from fala.model.heads import Head
from fala_export.errors import ExportError
from fala_export.families.prompts.inputs import Writers
from fala_export.families.prompts.model import PromptedClassifier
from fala_export.families.prompts.settings import USER_BIAS, PromptSettings
from fala_export.families.prompts.training import Model, make_encoder
from fala_export.models.encoder import load_encoder
from fala_export.models.folder import loading, naming
from fala_export.training.backbones import TransformerLearner
from fala_export.training.release import save_model

SETTINGS, WEIGHTS = "prompts/settings.json", "prompts/model.safetensors"
_BACKBONE = "prompted.encoder."


def save_prompts(model: Model, folder: Path) -> None:
    """Write a model folder with its prompts, whole or not at all.

    ``load_encoder`` reads the backbone; head and prompts are in ``prompts/``.

    Raises:
        ExportError: It cannot be written.
    """
    weights = {
        name: value.contiguous()
        for name, value in model.module.state_dict().items()
        if not name.startswith(_BACKBONE)
    }
    settings = {
        "settings": model.settings.recipe(),
        "max_length": model.learner.max_length,
        "labels": model.module.labels,
        "writers": model.writers.names,
        "texts": model.texts,
    }
    files = {WEIGHTS: save(weights), SETTINGS: json.dumps(settings, indent=1).encode()}
    save_model(model.learner.encoder, folder, files)


def load_prompts(folder: Path) -> Model:
    """Read what ``save_prompts`` wrote.

    Raises:
        ExportError: It is not such a folder, or damaged.
    """
    if not (folder / SETTINGS).is_file():
        raise ExportError(
            f"{folder}: has no {SETTINGS}; give the folder that fala-export prompts trained, "
            "model in its --work"
        )
    encoder = load_encoder(str(folder))
    with naming(str(folder)), loading("prompts"):
        content: Mapping[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        settings = PromptSettings(**content["settings"])
        labels = tuple(map(str, content["labels"]))
        writers = Writers(tuple(map(str, content["writers"])))
        learner = TransformerLearner(encoder, encoder.length(int(content["max_length"])))
        weights = load_weights((folder / WEIGHTS).read_bytes())
        count = len(writers.names)
        prompted = make_encoder(encoder, settings, count, seed=0)
        head = Head(CLASSIFICATION, labels, weights["weight"].numpy(), weights["bias"].numpy())
        biases = count if settings.kind == USER_BIAS else 0
        module = PromptedClassifier(prompted, head, biases)
        result = module.load_state_dict(weights, strict=False)
        missing = [name for name in result.missing_keys if not name.startswith(_BACKBONE)]
        if missing or result.unexpected_keys:
            raise ValueError(f"its weights are not those of {settings.kind} prompts")
        if not all(torch.isfinite(value).all() for value in weights.values()):
            raise ValueError("its weights hold NaN or infinity")
        texts = {str(name): list(map(str, own)) for name, own in content["texts"].items()}
    return Model(module.eval(), learner, settings, writers, texts)
