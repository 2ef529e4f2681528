"""What a training leaves: a release with a few writers' prompts, and a model folder with all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load as load_weights
from safetensors.torch import save
from scipy.cluster.vq import kmeans2

from fala import Bundle, ExportError, Head
from fala.release import (
    CLASSIFICATION,
    HARD_PROMPT,
    MAX_PROMPTS,
    MOST_COMPILED,
    Row,
    add_prompts,
    prompt_state,
    temporary_folder,
)
from fala_export.families.prompts.inputs import UNKNOWN, Writers
from fala_export.families.prompts.model import PromptedClassifier, predict
from fala_export.families.prompts.settings import HARD_STATIC, SOFT_ALL, USER_BIAS, PromptSettings
from fala_export.families.prompts.training import Model, Prompted, make_encoder
from fala_export.graph.parity import compare
from fala_export.models.encoder import load_encoder
from fala_export.models.folder import loading, naming
from fala_export.settings import ExportOptions
from fala_export.training.backbones import TransformerLearner
from fala_export.training.release import save_model, write_trained
from fala_export.writing import megabytes, writing

SETTINGS, WEIGHTS = "prompts/settings.json", "prompts/model.safetensors"
_BACKBONE = "prompted.encoder."


def save_prompts(model: Model, folder: Path) -> None:
    """Write a model folder with its prompts, whole or not at all.

    The backbone is what ``load_encoder`` reads; head and prompts lie beside it, in
    ``prompts/``.

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
    beside = {WEIGHTS: save(weights), SETTINGS: json.dumps(settings, indent=1).encode()}
    save_model(model.learner.encoder, folder, beside)


def load_prompts(folder: Path) -> Model:
    """Read what ``save_prompts`` wrote.

    Raises:
        ExportError: It is no such folder, or damaged.
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
        lacking = [name for name in result.missing_keys if not name.startswith(_BACKBONE)]
        if lacking or result.unexpected_keys:
            raise ValueError(f"its weights are not those of {settings.kind} prompts")
        if not all(torch.isfinite(value).all() for value in weights.values()):
            raise ValueError("its weights hold NaN or infinity")
        texts = {str(name): list(map(str, own)) for name, own in content["texts"].items()}
    return Model(module.eval(), learner, settings, writers, texts)


_COMPARED = 64  # texts
_ROUNDS = 50  # of k-means, which ends when nobody changes sides


def write_prompted(
    prompted: Prompted, out: Path, options: ExportOptions, count: int = MAX_PROMPTS
) -> dict[str, Any]:
    """Write a trained backbone with its head as a release; prompts at every layer come along.

    A static hard prompt's release lets the device compile its user's own texts to one. The other
    kinds' prompts are vectors before the text, biases or texts in another order each time, which
    no device takes: they stay in the model's folder.

    Args:
        prompted: What was trained.
        out: The bundle; left alone when anything fails.
        options: How to export the encoder.
        count: Prompts that a release brings, at most.

    Returns:
        As ``write_trained``, with ``prompts``: how many, and bytes.

    Raises:
        ExportError: The backbone cannot be exported so, or the output cannot be written.
    """
    model = prompted.model
    if model.settings.kind != SOFT_ALL:
        trained = prompted.trained
        if model.settings.kind == HARD_STATIC and not model.settings.both_ways:
            options = replace(options, prompts=True, hard_prompts=True)
            trained = replace(trained, details={**trained.details, **_hard_prompt(model)})
        return write_trained(trained, out, options)
    chosen, sizes = vendor_prompts(
        model, count, int(prompted.trained.details["training"]["recipe"]["seed"])
    )
    with temporary_folder() as folder:
        plain = folder / "plain.fala"
        summary = write_trained(prompted.trained, plain, replace(options, prompts=True))
        details = {
            "writers": len(model.writers.names),
            "writers_of_each": sizes,
            "parity": _parity(prompted, Bundle.open(plain), chosen[0], options),
        }
        with writing(out):
            manifest = add_prompts(out, Bundle.open(plain), chosen, details)
    return {
        **summary,
        "bundle": str(out),
        "prompts": {**manifest.details["prompts"], "bytes": chosen.nbytes},
        "megabytes": megabytes(out),
    }


def _hard_prompt(model: Model) -> dict[str, Any]:
    """What tells a device that it may compile a prompt, and of how many tokens."""
    return {HARD_PROMPT: {"tokens": min(model.settings.tokens, MOST_COMPILED)}}


def _parity(
    prompted: Prompted, bundle: Bundle, prompt: NDArray[np.float16], options: ExportOptions
) -> dict[str, Any]:
    """The unknown writer's embeddings, as a device has them and as the training had them.

    Raises:
        ExportError: They are less alike than they should be.
    """
    texts = [str(example) for example in prompted.trained.examples[:_COMPARED]]
    rows = [Row(None, "public", text, None, 0) for text in texts]
    model = prompted.model
    _, expected = predict(
        model.module, model.inputs(rows), [UNKNOWN] * len(rows), "embedding after a prompt"
    )
    parity = compare(bundle.backbone().encode(texts, prompt_state(prompt)), expected)
    if parity["mean_cosine"] < options.min_cosine:
        raise ExportError(
            f"{options.name}: after a prompt the mean cosine to the model in float32 is "
            f"{parity['mean_cosine']:.4f}, and should be at least {options.min_cosine}; choose a "
            "finer precision, or a lower floor"
        )
    return parity


def vendor_prompts(model: Model, count: int, seed: int) -> tuple[NDArray[np.float16], list[int]]:
    """A few prompts for all writers: the unknown one's, and means of writers who are alike.

    Args:
        model: Of prompts at every layer.
        count: How many, at most.
        seed: Of k-means.

    Returns:
        Shape (K, layers, 2, heads, length, head_dimension), and how many writers each mean is of.

    Raises:
        ExportError: A number does not fit float16.
    """
    numbers = torch.arange(len(model.writers.names) + 1)
    with torch.inference_mode():
        learnt = model.module.prompted.prefix(numbers).movedim(2, 0).numpy()
    writers = learnt[1:].reshape(len(learnt) - 1, -1)
    # Of writers who still are as they started there is one prompt, and k-means finds no more.
    distinct = len({row.tobytes() for row in writers})
    groups = _k_means(writers, min(count - 1, distinct), seed)
    means = [writers[groups == group].mean(axis=0) for group in range(groups.max() + 1)]
    sizes = np.bincount(groups).tolist()
    with np.errstate(over="ignore"):
        chosen = np.stack([learnt[0].ravel(), *means]).astype(np.float16)
    if not np.isfinite(chosen).all():
        raise ExportError("a prompt's number does not fit float16; train with a lower rate")
    return chosen.reshape(len(chosen), *learnt.shape[1:]), sizes


def _k_means(points: NDArray[np.float32], count: int, seed: int) -> NDArray[np.int64]:
    """The group of each point; groups are numbered by size, and none is empty."""
    _, groups = kmeans2(points, count, iter=_ROUNDS, minit="++", missing="warn", seed=seed)
    names, sizes = np.unique(groups, return_counts=True)
    order = names[np.argsort(-sizes, kind="stable")]
    number_of = {name: number for number, name in enumerate(order.tolist())}
    return np.array([number_of[name] for name in groups.tolist()], dtype=np.int64)
