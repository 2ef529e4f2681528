"""A model folder with writers' prompts: what a laboratory asks, and what a training leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fala import ExportError, Head
from fala.release import CLASSIFICATION
from fala_export.backbone import load
from fala_export.models.transformer_files import loading
from fala_export.prompts.classifier import PromptedClassifier
from fala_export.prompts.settings import USER_BIAS, PromptSettings
from fala_export.prompts.train import Model, make_encoder
from fala_export.prompts.writers import Writers
from fala_export.training.learners import TransformerLearner
from fala_export.training.release import save_model

SETTINGS, WEIGHTS = "prompts/settings.json", "prompts/model.safetensors"
_BACKBONE = "prompted.encoder."


def save_prompts(model: Model, folder: Path) -> None:
    """Write a model folder with its prompts, whole or not at all.

    The backbone is what ``fala_export.backbone.load`` reads; head and prompts lie beside it, in
    ``prompts/``.

    Raises:
        ExportError: It cannot be written.
    """
    from safetensors.torch import save

    own = {
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
    beside = {WEIGHTS: save(own), SETTINGS: json.dumps(settings, indent=1).encode()}
    save_model(model.learner.encoder, folder, beside)


def load_prompts(folder: Path) -> Model:
    """Read what ``save_prompts`` wrote.

    Raises:
        ExportError: It is no such folder, or damaged.
    """
    from safetensors.torch import load as load_weights

    if not (folder / SETTINGS).is_file():
        raise ExportError(
            f"{folder}: has no {SETTINGS}; give the folder that fala-export prompts trained, "
            "model in its --work"
        )
    encoder = load(str(folder))
    with loading(str(folder), "prompts"):
        told: Mapping[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        settings = PromptSettings(**told["settings"])
        labels = tuple(map(str, told["labels"]))
        writers = Writers(tuple(map(str, told["writers"])))
        learner = TransformerLearner(encoder, encoder.length(int(told["max_length"])))
        own = load_weights((folder / WEIGHTS).read_bytes())
        count = len(writers.names)
        prompted = make_encoder(encoder, settings, count, seed=0)
        head = Head(CLASSIFICATION, labels, own["weight"].numpy(), own["bias"].numpy())
        biases = count if settings.kind == USER_BIAS else 0
        module = PromptedClassifier(prompted, head, biases)
        found = module.load_state_dict(own, strict=False)
        lacking = [name for name in found.missing_keys if not name.startswith(_BACKBONE)]
        if lacking or found.unexpected_keys:
            raise ValueError(f"its weights are not those of {settings.kind} prompts")
        if not all(torch.isfinite(value).all() for value in own.values()):
            raise ValueError("its weights hold NaN or infinity")
        texts = {str(name): list(map(str, own)) for name, own in told["texts"].items()}
    return Model(module.eval(), learner, settings, writers, texts)
