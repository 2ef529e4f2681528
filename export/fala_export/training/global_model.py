"""Train a backbone and its head on public rows: the paper's first phase."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fala import Bundle
from fala.base.examples import MATCHING, unique_texts
from fala.base.files import temporary_folder
from fala.bundle.format import WORD_VECTORS
from fala_export.base.errors import ExportError
from fala_export.embedding import Embedder
from fala_export.models.encoder import Encoder
from fala_export.people.division import Division, divide
from fala_export.people.draw import rows_of_head
from fala_export.people.score import measure
from fala_export.recipe.settings import ExportOptions
from fala_export.recipe.training import LoopSettings, TrainingSettings, transformer_loop
from fala_export.rows.data_set import check_exclusive
from fala_export.rows.table import Rows
from fala_export.training.backbones import TrainableBackbone, TransformerLearner, WordLearner
from fala_export.training.candidates import Contest
from fala_export.training.classifier import ClassifierBatches, ClassifierModule
from fala_export.training.frozen_head import embed_rows, fit_frozen
from fala_export.training.loop import Batches, Training, TrainingHistory
from fala_export.training.matcher import MatcherBatches, MatcherModule
from fala_export.training.release import training_details, write_head, write_trained

# Weight decay would shrink only the words of held-out texts, which have no gradient.
_WORD_VECTORS = LoopSettings(epochs=20, learning_rate=1e-3, weight_decay=0.0)


def train(
    backbone: Encoder | Bundle,
    rows: Rows,
    settings: TrainingSettings,
    work: Path,
    out: Path,
    options: ExportOptions,
    *,
    lexical: bool = True,
    resume: bool = False,
    embedder: Embedder | None = None,
) -> dict[str, Any]:
    """Train a backbone and its head together, and write the release that is better for people.

    The head starts from a fit on the untrained backbone, so that the first steps do not
    distort the backbone's features (Kumar et al., "Fine-Tuning can Distort Pretrained Features and
    Underperform Out-of-Distribution", ICLR 2022). The epoch with the lowest loss on validation
    users is kept. Then the frozen and the trained backbone are exported, each with its head, and
    compared on the validation users, who are simulated as devices. The better one is released.
    Heads are calibrated, and figures are measured, on the embeddings that a device has.

    Args:
        backbone: A loaded encoder, which ends with the weights of the release; or a bundle of word
            vectors.
        rows: The public rows.
        settings: Settings of the training.
        work: Folder of the checkpoints.
        out: The release; not changed if anything fails.
        options: The export options; word vectors use only name and details.
        lexical: Whether the head has a lexical view.
        resume: Continue from the last complete checkpoint in ``work``, if there is one.
        embedder: The embedder of the texts; None does not keep embeddings.

    Returns:
        The summary of ``export_learned``, with the ``training``'s details.

    Raises:
        DataError: The rows are too few, or nothing can be learned from them.
        ExportError: The backbone cannot be trained or exported, or the training fails; see
            ``Training.run``.
    """
    check_exclusive(rows, "training a backbone")
    learner, loop = _learner(backbone, rows, options.max_length)
    source = learner.encoder if isinstance(learner, TransformerLearner) else learner
    untrained = copy.deepcopy(source)
    division = divide(rows, settings.seed, validation=True)
    recipe = recipe_of(rows, learner)
    training = Training(settings.over(loop), work, settings.seed, recipe, resume)
    module, _, history = train_from_start(training, learner, division, rows)
    run = {"recipe": training.provenance, "history": history.details}
    with temporary_folder() as folder:
        embedder = embedder or Embedder(folder / "embeddings")
        contest = Contest(rows, division, options, lexical, embedder, folder)
        candidates = [contest.candidate(untrained)]
        if history.best_step:
            candidates.append(contest.candidate(source, module, history.best_step))
        best = min(candidates, key=lambda candidate: candidate.played["loss"])
        held_out = {candidate.name: candidate.figures for candidate in candidates}
        table = {"candidates": [candidate.row for candidate in candidates], "chosen": best.name}
        if best.step == 0:
            learner.module.load_state_dict(untrained.module.state_dict())
            release = write_head(
                Path(best.bundle.path), rows, out, seed=settings.seed, lexical=lexical,
                embedder=embedder,
                details={**table, "tried": run, "held_out": held_out},
            )  # fmt: skip
        else:
            details = training_details(
                "backbone and head", rows, division, held_out, **run, **table, **best.details
            )
            release = write_trained(out, best.bundle, best.bundle.backbone(), best.head, details)
    return {**best.summary, **release}


def _learner(
    source: Encoder | Bundle, rows: Rows, max_length: int | None
) -> tuple[TransformerLearner | WordLearner, LoopSettings]:
    """Return a backbone, and the default settings of its training."""
    if isinstance(source, Bundle):
        if source.manifest.kind != WORD_VECTORS:
            raise ExportError(
                f"{source.path}: its backbone cannot be trained; name the model's own folder, or "
                "fit only a head with --frozen"
            )
        texts = unique_texts(row.example for row in rows)
        return WordLearner(source, texts), _WORD_VECTORS
    learner = TransformerLearner(source, source.length(max_length))
    if rows.task != MATCHING:
        learner.keep_tables()
    return learner, transformer_loop(rows.task)


def train_from_start(
    training: Training, learner: TrainableBackbone, division: Division, rows: Rows
) -> tuple[ClassifierModule | MatcherModule, dict[str, Any], TrainingHistory]:
    """Fit the head that a training starts from, and train the backbone with its head in place.

    Args:
        training: The training.
        learner: The backbone.
        division: The divided rows.
        rows: All rows.

    Returns:
        The trained module; the figures of the head that it started from, on the held-out rows; and
        the history of the training.

    Raises:
        DataError: The rows are too few, or nothing can be learned from them.
        ExportError: The training fails; see ``Training.run``.
    """
    training.open()
    fitted = rows_of_head(division.training)
    embeddings = embed_rows(learner, [*fitted, *division.held_out])
    start, _ = fit_frozen(learner, division.training, rows, embeddings, lexical=False)
    module: ClassifierModule | MatcherModule
    batches: Callable[..., Batches]
    loop, seed = training.settings, training.seed
    size = math.ceil(loop.batch / loop.passes)
    if rows.task == MATCHING:
        module = MatcherModule(learner, start)
        batches = partial(MatcherBatches, learner, label=rows.labels[1], batch=size, seed=seed)
    else:
        module = ClassifierModule(learner, start)
        batches = partial(
            ClassifierBatches, learner, labels=rows.labels, batch=size, seed=seed, epoch=loop.epoch
        )
    history = training.run(
        module, batches(rows=division.training), batches(rows=division.validation)
    )
    return module, measure(start, division.held_out, embeddings), history


def recipe_of(rows: Rows, learner: TrainableBackbone) -> dict[str, Any]:
    """Return what a training depends on, by readable names; see ``Training.recipe``."""
    return {
        "task": rows.task,
        "data": rows.digest,
        "backbone": learner.digest,
        "max_length": learner.max_length,
    }
