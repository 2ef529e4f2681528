"""Train one backbone and its writers' prompts on public rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fala import DataError
from fala.examples import CLASSIFICATION, unique_texts
from fala.model.losses import label_probabilities
from fala_export.errors import ExportError
from fala_export.families.adapters.model import parameters
from fala_export.families.prompts.inputs import (
    PLAIN,
    UNKNOWN,
    Contexts,
    Inputs,
    WriterBatches,
    Writers,
)
from fala_export.families.prompts.masked import MaskedBatches, MaskedModule
from fala_export.families.prompts.model import (
    PromptedClassifier,
    PromptedEncoder,
    SoftPrompts,
    predict,
    prefix_shape,
)
from fala_export.families.prompts.settings import (
    HARD,
    HARD_DYNAMIC,
    NONE,
    SOFT,
    SOFT_ALL,
    USER_BIAS,
    PromptSettings,
)
from fala_export.models.encoder import Encoder
from fala_export.rows.user_rows import Row
from fala_export.training.backbones import TransformerLearner, embed_rows
from fala_export.training.closed_form import closed_form, with_words
from fala_export.training.loop import Training
from fala_export.training.metrics import measure_probabilities
from fala_export.training.public_rows import Division, PublicRows, divide
from fala_export.training.release import Trained, recipe_of
from fala_export.training.settings import LoopSettings, TrainingSettings

_TUNED = LoopSettings(epochs=2, learning_rate=5e-5)
_FIXED = LoopSettings(epochs=4, learning_rate=1e-3)
_PACE, _FIXED_PACE = 30.0, 3.0  # of prompts; see ``SoftPrompts``


@dataclass(frozen=True)
class Model:
    """A backbone with its writers' prompts, and everything needed to predict.

    Attributes:
        module: With the head, in evaluation mode.
        learner: The backbone.
        settings: The kind of prompts.
        writers: The writers with a prompt.
        texts: The writers' texts, for hard prompts; empty for other kinds.
    """

    module: PromptedClassifier
    learner: TransformerLearner
    settings: PromptSettings
    writers: Writers
    texts: Mapping[str, Sequence[str]]

    def inputs(
        self, rows: Sequence[Row], new_texts: Mapping[str, Sequence[str]] | None = None
    ) -> Inputs:
        """Rows as this model's input.

        Args:
            rows: Rows of classification.
            new_texts: Texts of writers who are not in the training, for hard prompts.
        """
        if self.settings.kind not in HARD:
            return Inputs(self.learner, rows, self.writers)
        new = {} if new_texts is None else new_texts
        writers = Writers((*self.writers.names, *(new_writers(new, self.writers))))
        contexts = contexts_of(self.learner, self.settings, self.texts, new)
        return Inputs(self.learner, rows, writers, contexts)


@dataclass(frozen=True)
class Prompted:
    """The result of a training of writers' prompts.

    Attributes:
        model: The trained model.
        trained: The backbone and the head alone, with the details for a manifest.
    """

    model: Model
    trained: Trained


def new_writers(texts: Mapping[str, Sequence[str]], writers: Writers) -> list[str]:
    """The writers of some texts who are not in the training, in order."""
    return [name for name in texts if name not in set(writers.names)]


def contexts_of(
    learner: TransformerLearner,
    settings: PromptSettings,
    texts: Mapping[str, Sequence[str]],
    new_texts: Mapping[str, Sequence[str]],
) -> Contexts:
    """The hard prompts of a training's writers, and of new writers with texts."""
    corpus = unique_texts(text for own_texts in texts.values() for text in own_texts)
    dynamic = settings.kind == HARD_DYNAMIC
    return Contexts(learner, {**new_texts, **texts}, settings.tokens, corpus if dynamic else None)


def train_prompts(
    source: Encoder,
    rows: PublicRows,
    prompts: PromptSettings,
    settings: TrainingSettings,
    work: Path,
    *,
    max_length: int | None = None,
    resume: bool = False,
    lexical: bool = True,
) -> Prompted:
    """Train one backbone, one head and the writers' prompts together.

    Documents are divided, not users: a writer's prompt is validated and measured on texts without
    any training rows. The head starts from the closed form on the untrained backbone. The epoch
    with the lowest loss on the validation rows is kept.

    Args:
        source: A loaded encoder, trained in place unless it is fixed.
        rows: The public rows, which name their users.
        prompts: The kind of prompts.
        settings: Settings of the training; annotators are ignored.
        work: Folder of the checkpoints, with a folder for each stage.
        max_length: Tokens of a text that are read.
        resume: Continue from the last whole checkpoints in ``work``, if there are any.
        lexical: Whether the release's head has a lexical view; the model's head, with which
            prompts are measured, has none.

    Raises:
        DataError: The rows are too few, of matching, or of too few writers.
        ExportError: The backbone takes no prompts, or see ``Training.run``.
    """
    rows.needs_labels("training prompts")
    if rows.task != CLASSIFICATION:
        raise DataError("writers' prompts are a classifier's; these rows are of matching")
    if not all(isinstance(row.example, str) for row in rows.rows):
        raise DataError("writers' prompts are of single texts; some of these rows are of more")
    prefix_shape(source.module.transformer)
    learner = TransformerLearner(source, source.length(max_length))
    division = divide(rows.rows, settings.seed, validation=True, owners=("documents",))
    writers = Writers.of(division.training)
    loop = settings.over(_FIXED if prompts.fixed else _TUNED)
    recipe = {
        **recipe_of(rows, learner, settings.batch),
        "writers": len(writers.names),
        **{f"prompts_{name}": value for name, value in prompts.recipe().items()},
    }
    batch, seed = settings.batch, settings.seed
    task = Training(loop, work / "task", seed, recipe, resume)
    mlm_loop = replace(loop, epochs=prompts.mlm_epochs)
    mlm = Training(mlm_loop, work / "mlm", seed, recipe, resume)
    for stage in (mlm, task) if prompts.mlm else (task,):
        stage.open()

    texts = _texts(division.training, writers) if prompts.kind in HARD else {}
    prompted = make_encoder(source, prompts, len(writers.names), settings.seed)
    source.module.requires_grad_(not prompts.fixed)
    contexts = contexts_of(learner, prompts, texts, {}) if texts else None
    training = Inputs(learner, division.training, writers, contexts)
    validation = Inputs(learner, division.validation, writers, contexts)
    history: dict[str, Any] = {}
    if prompts.mlm:
        stage_history = mlm.run(
            MaskedModule(prompted, seed),
            MaskedBatches(learner, WriterBatches(training, batch, seed, prompts), seed),
            MaskedBatches(learner, WriterBatches(validation, batch, seed, None), seed),
        )
        history["mlm"] = stage_history.details
    plain = embed_rows(learner, division.training)
    head, _ = closed_form(learner, division.training, rows, plain, lexical=False)
    biases = len(writers.names) if prompts.kind == USER_BIAS else 0
    module = PromptedClassifier(prompted, head, biases)
    counts = parameters(module)
    labels = (_positions(division.training, rows.labels), len(rows.labels))
    validation_labels = (_positions(division.validation, rows.labels), len(rows.labels))
    stage_history = task.run(
        module,
        WriterBatches(training, batch, seed, prompts, labels),
        WriterBatches(validation, batch, seed, None, validation_labels),
    )
    history["task"] = stage_history.details
    source.module.requires_grad_(True)
    model = Model(module, learner, prompts, writers, texts)
    figures = _figures(model, Inputs(learner, division.held_out, writers, contexts), division)
    head = module.head
    words: dict[str, Any] = {}
    if lexical:
        # A device reads texts without a prompt, unless it has validated one.
        plain = embed_rows(learner, [*division.training, *division.validation])
        head, words = with_words(head, learner, division, rows, plain)
    trained = Trained.of(
        source, head, "backbone, head and writers' prompts", rows, division, figures,
        recipe=task.provenance, history=history, parameters=counts, **words,
    )  # fmt: skip
    return Prompted(model, trained)


def make_encoder(
    source: Encoder, prompts: PromptSettings, writers: int, seed: int
) -> PromptedEncoder:
    """A backbone with untrained prompts.

    Args:
        source: The backbone.
        prompts: Their kind and size.
        writers: Number of writers.
        seed: Seed of the initial prompts.
    """
    shape = prefix_shape(source.module.transformer)
    soft = None
    if prompts.kind in SOFT:
        width = int(source.module.transformer.get_input_embeddings().embedding_dim)
        inner = source.module.dimension if prompts.kind == SOFT_ALL else width
        soft = SoftPrompts(
            writers,
            prompts.tokens,
            shape.numbers if prompts.kind == SOFT_ALL else width,
            inner if prompts.mlp else None,
            _FIXED_PACE if prompts.fixed else _PACE,
            seed,
        )
    return PromptedEncoder(
        source.module, soft, every_layer=prompts.kind == SOFT_ALL, both_ways=prompts.both_ways
    )


def _texts(rows: Sequence[Row], writers: Writers) -> dict[str, list[str]]:
    """The distinct texts of every writer, in the order of the data."""
    by_writer: dict[str, dict[str, None]] = {name: {} for name in writers.names}
    for row in rows:
        if row.user in by_writer:
            by_writer[row.user][str(row.example)] = None
    return {name: list(texts) for name, texts in by_writer.items()}


def _positions(rows: Sequence[Row], labels: Sequence[str]) -> list[int]:
    column = {label: position for position, label in enumerate(labels)}
    return [column[str(row.label)] for row in rows]


def _figures(model: Model, inputs: Inputs, division: Division) -> dict[str, Any]:
    """Figures of held-out documents with the writers' prompts, and without."""
    with_prompt = [position for position, number in enumerate(inputs.numbers) if number != UNKNOWN]
    if not with_prompt:
        raise ExportError("no held-out row is of a writer with a prompt; try another --seed")
    cases = {"own": inputs.numbers}
    if model.settings.kind != NONE:
        cases["unknown"] = [UNKNOWN] * len(inputs)
    if model.settings.kind in SOFT:
        cases["plain"] = [PLAIN] * len(inputs)
    rows = [division.held_out[position] for position in with_prompt]
    figures = {}
    for name, numbers in cases.items():
        logits, _ = predict(model.module, inputs, numbers, "measuring on held-out rows")
        labels = model.module.labels
        probabilities = label_probabilities(logits[with_prompt])
        figures[name] = measure_probabilities(labels, rows, probabilities)
    return figures
