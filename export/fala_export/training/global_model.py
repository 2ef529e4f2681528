"""The paper's first phase: a backbone and its head, trained on public rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fala import Bundle, DataError
from fala.bundle.format import WORD_VECTORS
from fala.cli import counted
from fala.examples import MATCHING, unique_texts
from fala.files import temporary_folder
from fala.model.heads import Head
from fala_export.embedding import Embedder
from fala_export.errors import ExportError
from fala_export.fitting.samples import drawn
from fala_export.models.encoder import Encoder
from fala_export.models.source import Source
from fala_export.settings import ExportOptions
from fala_export.training.backbones import Learner, TransformerLearner, WordLearner
from fala_export.training.classifier import ClassifierBatches, ClassifierModule
from fala_export.training.closed_form import Start, embed_rows, start_of
from fala_export.training.loop import Batches, History, Training
from fala_export.training.matcher import MatcherBatches, MatcherModule, Opened
from fala_export.training.metrics import measure
from fala_export.training.public_rows import Division, PublicRows, divide
from fala_export.training.release import training_details, write_trained
from fala_export.training.saving import export_learned
from fala_export.training.settings import TrainingSettings

_FEWEST_ANNOTATORS = 2  # a single annotator's head would equal the shared one
_FEWEST_ROWS = 5  # with fewer rows an annotator's head overfits
# With 768 dimensions their heads and the optimizer's states are 49 MB, which each step reads.
_MOST_ANNOTATORS = 4_000


def train(
    source: Source | Bundle,
    rows: PublicRows,
    settings: TrainingSettings,
    work: Path,
    out: Path,
    options: ExportOptions,
    *,
    resume: bool = False,
    embedder: Embedder | None = None,
) -> dict[str, Any]:
    """Train a backbone and its head together, and write their release; ``write_words`` adds words.

    The head starts from the closed form on the untrained backbone, so that the first steps do not
    distort the backbone's features (Kumar et al., "Fine-Tuning can Distort Pretrained Features and
    Underperform Out-of-Distribution", ICLR 2022); the figures compare with this start. The epoch
    with the lowest loss on validation users is kept. The backbone is exported then: the head is
    calibrated, and its figures are measured, on the embeddings that a device has.

    Args:
        source: A loaded encoder, which is trained in place; or a bundle of word vectors.
        rows: The public rows.
        settings: Settings of the training.
        work: Folder of the checkpoints.
        out: The release; left alone when anything fails.
        options: The export options. Word vectors take only name and details from them.
        resume: Continue from the last whole checkpoint in ``work``, if there is one.
        embedder: Embeds the texts of validation and report; None keeps no embeddings.

    Returns:
        As ``export_learned``, with the ``training``'s details.

    Raises:
        DataError: The rows are too few, or nothing can be learned from them.
        ExportError: The source cannot be trained or exported, or see ``Training.run``.
    """
    rows.needs_labels("training a backbone")
    learner = _learner(source, rows, options.max_length)
    division = divide(rows.rows, settings.seed, validation=True)
    annotators, available = _annotators(rows, division, settings)
    recipe = {
        **recipe_of(rows, learner, settings.batch),
        "annotators": len(annotators),
        "of_annotators": available,
    }
    training = Training(settings.over(learner.settings), work, settings.seed, recipe, resume)
    module, start, history = train_from_start(
        training, learner, division, rows, settings.batch, annotators=annotators
    )
    trained = learner.encoder if isinstance(learner, TransformerLearner) else learner
    with temporary_folder() as folder:
        backbone = folder / "backbone.fala"
        summary = export_learned(trained, division.held_out, backbone, options)
        bundle = Bundle.open(backbone)
        runs = bundle.backbone()
        measured = [*division.validation, *division.held_out]
        embeddings = embed_rows(runs, measured, embedder, bundle.backbone_digest)
        head = module.head(division.validation, embeddings)
        figures = {
            "frozen": measure(start.head, division.held_out, start.embeddings),
            "trained": measure(head, division.held_out, embeddings),
        }
        details = training_details(
            "backbone and head", rows, division, figures,
            recipe=training.provenance, history=history.details,
        )  # fmt: skip
        return {**summary, **write_trained(out, bundle, runs, head, details)}


def _learner(
    source: Source | Bundle, rows: PublicRows, max_length: int | None
) -> TransformerLearner | WordLearner:
    if isinstance(source, Bundle):
        if source.manifest.kind != WORD_VECTORS:
            raise ExportError(
                f"{source.path}: its graph cannot be trained; give the model's own folder, or "
                "--frozen to fit a head only"
            )
        return WordLearner(source, unique_texts(row.example for row in rows.rows))
    if not isinstance(source, Encoder):
        raise TypeError("a graph cannot be trained")
    return TransformerLearner(source, source.length(max_length))


def _annotators(
    rows: PublicRows, division: Division, settings: TrainingSettings
) -> tuple[list[str], int]:
    """The users with their own head while a classifier is trained, and of how many they are drawn.

    Raises:
        DataError: The settings require annotators, and there are too few, or the task is matching.
    """
    enabled = settings.annotators
    if rows.task == MATCHING:
        if enabled:
            raise DataError("annotators' own heads are a classifier's; these rows are of matching")
        return [], 0
    counts = Counter(row.user for row in division.training if row.user is not None)
    users = [user for user, count in counts.most_common() if count >= _FEWEST_ROWS]
    if enabled and len(users) < _FEWEST_ANNOTATORS:
        raise DataError(
            f"the training rows have {counted(len(users), 'user')} of {_FEWEST_ROWS} rows or "
            f"more, and annotators' own heads need {_FEWEST_ANNOTATORS}; leave out --annotators"
        )
    if enabled is False or len(users) < _FEWEST_ANNOTATORS:
        return [], len(users)
    return drawn(users, _MOST_ANNOTATORS, settings.seed), len(users)


def train_from_start(
    training: Training,
    learner: Learner,
    division: Division,
    rows: PublicRows,
    batch: int,
    *,
    annotators: Sequence[str] = (),
) -> tuple[ClassifierModule | MatcherModule, Start, History]:
    """Fit the head that a training starts from, and train the backbone with its head in place.

    Args:
        training: The training.
        learner: The backbone.
        division: The divided rows.
        rows: All rows.
        batch: Texts per step; for a matcher, opened candidates.
        annotators: Users with their own head during the training.

    Returns:
        The trained module, its start, and the history of the training.

    Raises:
        DataError: The rows are too few, or nothing can be learned from them.
        ExportError: See ``Training.run``.
    """
    training.open()
    start = start_of(learner, division, rows)
    module, batches, validation = _objective(
        learner, division, rows, start.head, batch, training.seed, annotators
    )
    return module, start, training.run(module, batches, validation)


def _objective(
    learner: Learner,
    division: Division,
    rows: PublicRows,
    start: Head,
    batch: int,
    seed: int,
    annotators: Sequence[str],
) -> tuple[ClassifierModule | MatcherModule, Batches, Batches]:
    """The module with its loss, and the batches to train and to validate on.

    Only the shared head is validated, as only it is kept.
    """
    training, validation = division.training, division.validation
    if rows.task == MATCHING:
        label = rows.labels[1]
        return (
            MatcherModule(learner, start),
            MatcherBatches(learner, Opened(training, label), batch, seed),
            MatcherBatches(learner, Opened(validation, label), batch, seed),
        )
    return (
        ClassifierModule(learner, start, len(annotators)),
        ClassifierBatches(learner, training, rows.labels, batch, seed, annotators),
        ClassifierBatches(learner, validation, rows.labels, batch, seed),
    )


def recipe_of(rows: PublicRows, learner: Learner, batch: int) -> dict[str, Any]:
    """What every training of a backbone depends on, by readable names; see ``Training.recipe``."""
    return {
        "task": rows.task,
        "data": rows.digest,
        "backbone": learner.digest,
        "max_length": learner.max_length,
        "batch": batch,
    }
