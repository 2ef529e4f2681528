"""Train a task on a shared backbone by adapters, or by another part of the model.

A bundle contains only the graph, which cannot be trained, so its torch model is loaded as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedModel

from fala import Bundle, Pair
from fala.backbones import OnnxEncoder
from fala.base.examples import MATCHING
from fala.bundle.format import ONNX, TOKENIZER
from fala.model.heads import Vectors
from fala_export.base.errors import ExportError
from fala_export.bundle.adapter import stored_inputs
from fala_export.graph.parity import compare_embeddings
from fala_export.graph.sentences import parity_texts
from fala_export.models.encoder import Encoder
from fala_export.models.load import load
from fala_export.people.division import Division
from fala_export.recipe.adapters import ADAPTER_LOOP, TaskRelease
from fala_export.recipe.settings import ModelSource
from fala_export.recipe.training import Best, LoopSettings
from fala_export.rows.data_set import check_exclusive
from fala_export.rows.table import Rows
from fala_export.training.adapters.model import (
    Site,
    adapter_inputs,
    configuration,
    parameters,
    prepare_adapters,
    set_inputs,
)
from fala_export.training.backbones import TransformerLearner
from fala_export.training.classifier import ClassifierModule
from fala_export.training.global_model import recipe_of, train_from_start
from fala_export.training.loop import Training
from fala_export.training.matcher import MatcherModule

_TEXTS = 32  # Each text is compared alone, and in a pair with the next.


@dataclass(frozen=True)
class Base:
    """A backbone that tasks are trained for.

    Attributes:
        bundle: The bundle on devices.
        graph: The bundle's backbone.
        encoder: The torch model that the bundle was exported from, with the bundle's tokenizer.
        max_length: Number of tokens of a text that both read.
        cosine: Mean cosine between the embeddings of both.
    """

    bundle: Bundle
    graph: OnnxEncoder
    encoder: Encoder
    max_length: int
    cosine: float


def open_base(settings: TaskRelease) -> Base:
    """Open a task's base bundle, load its torch model, and compare both.

    Raises:
        BundleError: The bundle cannot be trusted.
        ExportError: The backbone is not a transformer, or the model cannot be loaded or is a
            different one.
    """
    path = settings.base
    bundle = Bundle.open(path)
    manifest = bundle.manifest
    if manifest.kind != ONNX:
        raise ExportError(
            f"{path}: must contain a transformer, on which a task is trained, not {manifest.kind}"
        )
    graph = bundle.backbone()
    if not isinstance(graph, OnnxEncoder):
        raise TypeError("the bundle of a transformer has another kind of backbone")
    if manifest.max_length is None:
        raise ExportError(
            f"{path}: does not say how many tokens of a text it reads; export the backbone again"
        )
    encoder = load(ModelSource(settings.model, settings.revision), like=bundle)
    encoder = replace(encoder, tokenizer=bundle.read(TOKENIZER), pad_id=manifest.pad_id)
    mismatch = f"{settings.model} is not the model that {path} was exported from"
    _check_vocabulary(encoder, mismatch)
    max_length = encoder.length(manifest.max_length)
    cosine = _cosine(encoder, graph, max_length)
    if cosine < settings.min_cosine:
        raise ExportError(
            f"{mismatch}: the mean cosine of their embeddings is {cosine:.4f}, but must be at "
            f"least {settings.min_cosine}"
        )
    return Base(bundle, graph, encoder, max_length, cosine)


def _check_vocabulary(encoder: Encoder, mismatch: str) -> None:
    tokens = Tokenizer.from_str(encoder.tokenizer.decode()).get_vocab(with_added_tokens=True)
    size, needed = int(encoder.module.transformer.config.vocab_size), max(tokens.values()) + 1
    if size < needed:
        raise ExportError(f"{mismatch}: it has {size} tokens, but the bundle needs {needed}")


def _cosine(encoder: Encoder, graph: OnnxEncoder, max_length: int) -> float:
    singles = parity_texts(None)[:_TEXTS]
    texts = [*singles, *(Pair(a, b) for a, b in pairwise(singles))]
    return compare_embeddings(graph.encode(texts), encoder.encode(texts, max_length))["mean_cosine"]


@dataclass(frozen=True)
class TrainedTask:
    """The result of training a task.

    Attributes:
        part: The part of the model that was trained, such as ``"adapters"``.
        module: The trained model with its head.
        learner: The module's backbone.
        frozen: Figures of the head that the training started from, on the held-out rows.
        inputs: The adapters as inputs of the backbone's graph, rounded as in a bundle; empty if
            another part of the model was trained.
        config: The ``adapter_config.json``; empty without adapters.
        details: Details of the training for the manifest.
    """

    part: str
    module: ClassifierModule | MatcherModule
    learner: TransformerLearner
    frozen: Mapping[str, Any]
    inputs: Mapping[str, Vectors]
    config: Mapping[str, Any]
    details: Mapping[str, Any]


@dataclass(frozen=True)
class TaskPart:
    """The part of a model that a task trains in addition to its head.

    Attributes:
        recipe: Name and settings of the part, for a manifest.
        loop: Default settings of the part's training.
        prepare: A function that sets which parameters are trained, and returns the sites of new
            adapters, if there are any.
    """

    recipe: Mapping[str, Any]
    loop: LoopSettings
    prepare: Callable[[PreTrainedModel], list[Site]]


def train_task(
    base: Base,
    rows: Rows,
    division: Division,
    settings: TaskRelease,
    part: TaskPart | None = None,
) -> TrainedTask:
    """Train a task's own part of a model, and its head.

    The head starts from a fit on the base, which new adapters hardly change. The training
    follows the paper's recipe (section 3.1): AdamW, a learning rate that rises in the first tenth
    of the steps and then falls linearly, and the epoch with the best validation accuracy.

    Args:
        base: The backbone, whose torch model is trained in place.
        rows: The public rows.
        division: The divided rows.
        settings: Settings of the training; annotators are ignored.
        part: The part to train; None trains adapters with the settings.

    Raises:
        DataError: The rows are too few, or nothing can be learned from them.
        ExportError: The model has no places for adapters, or the training fails; see
            ``Training.run``.
    """
    check_exclusive(rows, "training adapters")
    encoder, schedule = base.encoder, settings.training
    if part is None:
        method = settings.method
        adapters = partial(prepare_adapters, method=method, seed=schedule.seed)
        part = TaskPart(method.recipe(), ADAPTER_LOOP, adapters)
    learner = TransformerLearner(encoder, base.max_length)
    sites = part.prepare(encoder.module.transformer)
    loop = schedule.over(part.loop)
    best: Best = "loss" if rows.task == MATCHING else "accuracy"
    loop = replace(loop, patience=loop.epochs, best=settings.best or best)
    recipe = {
        **recipe_of(rows, learner),
        "divided_by": division.by,
        "method": dict(part.recipe),
    }
    training = Training(loop, settings.work, schedule.seed, recipe, settings.resume)
    module, frozen, history = train_from_start(training, learner, division, rows)
    inputs: dict[str, Vectors] = {}
    if sites:
        # Adapters are rounded when shipped, so the head is finished and measured with the rounded
        # ones.
        inputs = stored_inputs(adapter_inputs(sites), learner.dimension)
        set_inputs(sites, inputs)
    details = {
        "recipe": training.provenance, "history": history.details, "parameters": parameters(module),
    }  # fmt: skip
    config = (
        configuration(encoder.module.transformer, settings.method, settings.task) if sites else {}
    )
    name = str(part.recipe["name"])
    return TrainedTask(name, module, learner, frozen, inputs, config, details)
