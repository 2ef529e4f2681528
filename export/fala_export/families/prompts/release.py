"""Write a training's release with a few writers' prompts, and its model folder with all."""

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

from fala import Bundle
from fala.bundle.format import HARD_PROMPT, MAX_PROMPTS
from fala.bundle.prompts import MOST_COMPILED, prompt_state
from fala.bundle.writing import add_prompts
from fala.examples import CLASSIFICATION
from fala.files import temporary_folder
from fala.model.heads import Head
from fala_export.errors import ExportError
from fala_export.families.prompts.inputs import UNKNOWN, Writers
from fala_export.families.prompts.model import PromptedClassifier, predict
from fala_export.families.prompts.settings import HARD_STATIC, SOFT_ALL, USER_BIAS, PromptSettings
from fala_export.families.prompts.training import Model, Prompted, make_encoder
from fala_export.graph.parity import compare
from fala_export.models.encoder import load_encoder
from fala_export.models.folder import loading, naming
from fala_export.rows.user_rows import Row
from fala_export.settings import ExportOptions
from fala_export.training.backbones import TransformerLearner
from fala_export.training.release import save_model, write_trained
from fala_export.writing import megabytes, writing

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


_COMPARED = 64  # texts
_ROUNDS = 50  # of k-means, at most


def write_prompted(
    prompted: Prompted, out: Path, options: ExportOptions, count: int = MAX_PROMPTS
) -> dict[str, Any]:
    """Write a trained backbone with its head as a release, with prompts at every layer.

    With static hard prompts the device may compile a prompt from its user's texts. Devices do not
    support prompts of other kinds (vectors before the text, biases, texts in an order that varies),
    which stay in the model's folder.

    Args:
        prompted: The trained model.
        out: The bundle; left alone when anything fails.
        options: How to export the encoder.
        count: Most prompts of a release.

    Returns:
        As ``write_trained``, with ``prompts``: their number and bytes.

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
    """The manifest's detail that lets a device compile a prompt, with its number of tokens."""
    return {HARD_PROMPT: {"tokens": min(model.settings.tokens, MOST_COMPILED)}}


def _parity(
    prompted: Prompted, bundle: Bundle, prompt: NDArray[np.float16], options: ExportOptions
) -> dict[str, Any]:
    """Compare the unknown writer's embeddings on a device with those of the training.

    Raises:
        ExportError: The mean cosine is below the floor.
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
    """A few prompts for all writers: the unknown one's, and means of similar writers.

    Args:
        model: A model with prompts at every layer.
        count: Most prompts.
        seed: Seed of k-means.

    Returns:
        Shape (K, layers, 2, heads, length, head_dimension), and the number of writers of each mean.

    Raises:
        ExportError: A number does not fit float16.
    """
    numbers = torch.arange(len(model.writers.names) + 1)
    with torch.inference_mode():
        learnt = model.module.prompted.prefix(numbers).movedim(2, 0).numpy()
    writers = learnt[1:].reshape(len(learnt) - 1, -1)
    # Untrained writers have equal prompts, and k-means finds no more groups than distinct ones.
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
    """The group of each point; groups are numbered by falling size, and none is empty."""
    _, groups = kmeans2(points, count, iter=_ROUNDS, minit="++", missing="warn", seed=seed)
    names, sizes = np.unique(groups, return_counts=True)
    order = names[np.argsort(-sizes, kind="stable")]
    number_of = {name: number for number, name in enumerate(order.tolist())}
    return np.array([number_of[name] for name in groups.tolist()], dtype=np.int64)
