"""Trains one backbone, one head and the writers' prompts together, on public rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fala import DataError
from fala.base.examples import CLASSIFICATION, unique_texts
from fala_export import (
    Embedder,
    Encoder,
    LoopSettings,
    Row,
    Rows,
    Training,
    TransformerLearner,
    divide,
    fit_head,
)
from studies.perplm.inputs import Contexts, WriterBatches, WriterInputs, writers_of
from studies.perplm.masked import MaskedBatches, MaskedModule
from studies.perplm.model import PromptedClassifier, PromptedEncoder, SoftPrompts, prefix_shape
from studies.perplm.prompts import (
    HARD,
    HARD_DYNAMIC,
    SOFT,
    SOFT_ALL,
    USER_BIAS,
    PromptSettings,
)

_BATCH = 32
_TUNED = LoopSettings(epochs=2, learning_rate=5e-5, batch=_BATCH)
_FIXED = LoopSettings(epochs=4, learning_rate=1e-3, batch=_BATCH)
_PACE, _FIXED_PACE = 30.0, 3.0  # pace of prompts; see ``SoftPrompts``


@dataclass(frozen=True)
class PromptedModel:
    """A backbone with its writers' prompts, and everything needed to predict.

    Attributes:
        module: The prompted backbone with the head, in evaluation mode.
        learner: The backbone.
        settings: The kind of prompts.
        writers: The writers with a prompt.
        texts: The writers' texts, for hard prompts; empty for other kinds.
        about: The training, as JSON values: ``parameters``, ``writers``, ``trained_rows``,
            ``history`` and ``recipe``.
    """

    module: PromptedClassifier
    learner: TransformerLearner
    settings: PromptSettings
    writers: Sequence[str]
    texts: Mapping[str, Sequence[str]]
    about: Mapping[str, Any]

    def inputs(
        self, rows: Sequence[Row], new_texts: Mapping[str, Sequence[str]] | None = None
    ) -> WriterInputs:
        """Return rows as this model's input.

        Args:
            rows: Rows of classification.
            new_texts: Texts of writers who are not in the training, for hard prompts.
        """
        if self.settings.kind not in HARD:
            return WriterInputs(self.learner, rows, self.writers)
        texts = {**(new_texts or {}), **self.texts}
        new = [name for name in texts if name not in self.texts]
        contexts = contexts_of(self.learner, self.settings, texts, self.texts)
        return WriterInputs(self.learner, rows, [*self.writers, *new], contexts)


def contexts_of(
    learner: TransformerLearner,
    settings: PromptSettings,
    texts: Mapping[str, Sequence[str]],
    trained: Mapping[str, Sequence[str]],
) -> Contexts:
    """Return the hard prompts of writers.

    Args:
        learner: The backbone.
        settings: The kind of prompts.
        texts: The writers' texts.
        trained: The texts of the training's writers, in which n-grams are counted.
    """
    corpus = unique_texts(text for own_texts in trained.values() for text in own_texts)
    dynamic = settings.kind == HARD_DYNAMIC
    return Contexts(learner, texts, settings.tokens, corpus if dynamic else None)


def train_prompts(
    source: Encoder,
    rows: Rows,
    prompts: PromptSettings,
    seed: int,
    work: Path,
    max_length: int,
    *,
    tuned: LoopSettings = _TUNED,
    fixed: LoopSettings = _FIXED,
) -> PromptedModel:
    """Train one backbone, one head and the writers' prompts together.

    Documents are divided, not users: a writer's prompt is validated on texts without any training
    rows. The head starts from a fit on the untrained backbone. The epoch with the lowest
    loss on the validation rows is kept. A training that was killed continues from its last complete
    checkpoint.

    Args:
        source: A loaded encoder, trained in place unless it is fixed.
        rows: The public rows, which name their users.
        prompts: The kind of prompts.
        seed: Seed of every random choice.
        work: Folder of the checkpoints, with a folder for each stage.
        max_length: Maximum number of tokens that are read of a text.
        tuned: Settings of the loop if the backbone is trained.
        fixed: Settings of the loop if the backbone is fixed.

    Raises:
        DataError: The rows are too few, for matching, or of too few writers.
        ExportError: The backbone takes no prompts, or the training fails; see
            ``fala_export.Training.run``.
    """
    if rows.task != CLASSIFICATION:
        raise DataError("writers' prompts need rows for a classifier, not for matching")
    prefix_shape(source)  # so that a mistake in the backbone fails first
    learner = TransformerLearner(source, source.length(max_length))
    # The division is the exporter's: a tenth for validation, and a tenth for a report that is not
    # made.
    division = divide(rows, seed, validation=True, owners=("documents",))
    writers = writers_of(division.training)
    recipe = {
        "data": rows.digest,
        "backbone": learner.digest,
        "max_length": learner.max_length,
        "writers": len(writers),
        **{f"prompts_{name}": value for name, value in prompts.recipe().items()},
    }
    loop = fixed if prompts.fixed else tuned
    task = Training(loop, work / "task", seed, recipe, resume=True)
    mlm_loop = replace(loop, epochs=prompts.mlm_epochs)
    mlm = Training(mlm_loop, work / "mlm", seed, recipe, resume=True)

    texts = _texts(division.training, writers) if prompts.kind in HARD else {}
    prompted = make_encoder(source, prompts, len(writers), seed)
    source.module.requires_grad_(not prompts.fixed)
    contexts = contexts_of(learner, prompts, texts, texts) if texts else None
    training = WriterInputs(learner, division.training, writers, contexts)
    validation = WriterInputs(learner, division.validation, writers, contexts)
    history: dict[str, Any] = {}
    if prompts.mlm:
        stage = mlm.run(
            MaskedModule(prompted, seed),
            MaskedBatches(learner, WriterBatches(training, _BATCH, seed, prompts), seed),
            MaskedBatches(learner, WriterBatches(validation, _BATCH, seed, None), seed),
        )
        history["mlm"] = stage.details
    distinct = unique_texts(row.example for row in division.training)
    vectors = Embedder().embed(learner, "", distinct, "embedding texts")
    head = fit_head(
        learner, [row.example for row in division.training],
        [row.label for row in division.training], label_names=rows.labels,
        embeddings=dict(zip(distinct, vectors, strict=True)), lexical=False,
    )  # fmt: skip
    biases = len(writers) if prompts.kind == USER_BIAS else 0
    module = PromptedClassifier(prompted, head, biases)
    numbers = [(p.numel(), p.requires_grad) for p in module.parameters()]
    stage = task.run(
        module,
        WriterBatches(training, _BATCH, seed, prompts, _labels(division.training, rows)),
        WriterBatches(validation, _BATCH, seed, None, _labels(division.validation, rows)),
    )
    history["task"] = stage.details
    about = {
        "parameters": {
            "all": sum(count for count, _ in numbers),
            "trained": sum(count for count, is_trained in numbers if is_trained),
        },
        "writers": len(writers),
        "trained_rows": len(division.training),
        "history": history,
        "recipe": {**recipe, **asdict(loop), "seed": seed},
    }
    return PromptedModel(module, learner, prompts, writers, texts, about)


def make_encoder(
    source: Encoder, prompts: PromptSettings, writers: int, seed: int
) -> PromptedEncoder:
    """Return a backbone with untrained prompts.

    Args:
        source: The backbone.
        prompts: Kind and size of the prompts.
        writers: Number of writers.
        seed: Seed of the initial prompts.
    """
    shape = prefix_shape(source)
    soft = None
    if prompts.kind in SOFT:
        width = int(source.module.transformer.get_input_embeddings().embedding_dim)
        inner = source.module.end.dimension if prompts.kind == SOFT_ALL else width
        soft = SoftPrompts(
            writers,
            prompts.tokens,
            2 * math.prod(shape) if prompts.kind == SOFT_ALL else width,  # keys and values
            inner if prompts.mlp else None,
            _FIXED_PACE if prompts.fixed else _PACE,
            seed,
        )
    return PromptedEncoder(
        source, soft, every_layer=prompts.kind == SOFT_ALL, both_ways=prompts.both_ways
    )


def _texts(rows: Sequence[Row], writers: Sequence[str]) -> dict[str, list[str]]:
    """Return the distinct texts of every writer, in the order of the data."""
    by_writer: dict[str, dict[str, None]] = {name: {} for name in writers}
    for row in rows:
        if row.user in by_writer:
            by_writer[row.user][str(row.example)] = None
    return {name: list(texts) for name, texts in by_writer.items()}


def _labels(rows: Sequence[Row], public: Rows) -> tuple[list[int], int]:
    """Return the positions of some rows' labels, and the number of labels."""
    column = {str(label): position for position, label in enumerate(public.labels)}
    return [column[str(row.label)] for row in rows], len(public.labels)
