"""Distil a sentence encoder into a smaller one.

The student learns the teacher's sentence embeddings themselves (as in Reimers and Gurevych,
"Making Monolingual Sentence Embeddings Multilingual", EMNLP 2020), projected to the student's
dimension by the directions that keep most of their length. Every part resumes where it stopped.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from fala.cli import be, counted
from fala_export.embedding import Embedder, Stream
from fala_export.embedding.tokens import pad
from fala_export.errors import ExportError
from fala_export.families.distillation.model import (
    Imitation,
    average_untrained_positions,
    choose_shape,
    keep_layers,
    keep_pieces,
    make_student,
    piece_vectors,
)
from fala_export.families.distillation.settings import Distillation
from fala_export.families.distillation.texts import Texts
from fala_export.families.distillation.vocabulary import Vocabulary, choose_vocabulary
from fala_export.models.encoder import Encoder
from fala_export.models.saving import save_encoder
from fala_export.models.sentence_encoder import SentenceEncoder
from fala_export.training.backbones import TransformerLearner
from fala_export.training.loop import Training
from fala_export.training.settings import LoopSettings
from fala_export.training.texts import EpochPlan, length_batches

Floats = NDArray[np.float32]


def projection(embeddings: Floats | Stream, dimension: int) -> Floats:
    """Find the subspace that keeps most of the embeddings' squared length.

    Principal directions about the origin, not about the mean, so that cosines are kept.

    Args:
        embeddings: Shape (n, wide).
        dimension: Number of directions.

    Returns:
        Shape (wide, dimension), orthonormal columns, the strongest direction first; the identity
        if ``dimension`` is ``wide``.
    """
    wide = embeddings.shape[1]
    if dimension == wide:
        return np.eye(wide, dtype=np.float32)
    products = np.zeros((wide, wide))
    for part in _parts(len(embeddings)):
        block = embeddings[part]
        products += block.T.astype(np.float64) @ block
    _, directions = np.linalg.eigh(products)
    return directions[:, ::-1][:, :dimension].astype(np.float32)


def _parts(count: int) -> Iterator[slice]:
    """Rows of embeddings, some at a time: a teacher's may not fit the memory."""
    for start in range(0, count, _BLOCK):
        yield slice(start, start + _BLOCK)


def figures(student: Floats, targets: Floats, teacher: Floats) -> dict[str, float]:
    """Compare the student with the teacher on held-out texts.

    Args:
        student: Shape (n, dim).
        targets: The teacher's projected embeddings, same shape.
        teacher: The teacher's own embeddings, shape (n, wide).

    Returns:
        Mean cosine to the target, and Spearman's correlation of the cosines of all pairs
        of texts, student against unprojected teacher.
    """
    upper = np.triu_indices(len(student), 1)
    student, targets, teacher = unit(student), unit(targets), unit(teacher)
    ranks = stats.spearmanr((student @ student.T)[upper], (teacher @ teacher.T)[upper])
    return {
        "held_out_cosine": round(float((student * targets).sum(1).mean()), 4),
        "held_out_pair_spearman": round(float(ranks.statistic), 4),
    }


def unit(rows: Floats) -> Floats:
    """Scale every row to length 1."""
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


LONGEST = 64  # pieces of a text that the training reads, where the teacher reads as many
_BLOCK = 1 << 14  # embeddings that are multiplied at a time
_WARM_UP = 0.02  # of the steps
_RATES = {True: 1e-4, False: 1e-3}  # by whether the layers come from the teacher


class TextBatches:
    """Texts and the teacher's embeddings of them, in batches of similar length.

    Args:
        pieces: Piece ids of n texts.
        targets: Shape (n, dim).
        size: Texts per batch.
        pad_id: The padding piece's id.
        seed: Seed of the order, which differs between epochs.
    """

    def __init__(
        self,
        pieces: Sequence[Sequence[int]],
        targets: NDArray[np.float32],
        size: int,
        pad_id: int,
        seed: int,
    ) -> None:
        self._pieces = pieces
        self._targets = torch.from_numpy(targets)
        self._pad_id = pad_id
        self._plan = EpochPlan(seed, partial(length_batches, [len(ids) for ids in pieces], size))

    def __len__(self) -> int:
        return len(self._plan)

    def batch(self, epoch: int, position: int) -> dict[str, Tensor]:
        """The arguments of ``Imitation.forward``."""
        chosen = self._plan.batch(epoch, position)
        ids, mask = pad([self._pieces[index] for index in chosen], self._pad_id)
        return {"input_ids": ids, "attention_mask": mask, "targets": self._targets[chosen]}


@dataclass(frozen=True)
class Distilled:
    """A distilled student.

    Attributes:
        encoder: The student.
        folder: Its folder in the format of sentence-transformers.
        figures: Its similarity to the teacher on held-out texts.
    """

    encoder: Encoder
    folder: Path
    figures: dict[str, Any]


def distil(
    teacher: Encoder, texts: Texts, settings: Distillation, work: Path, seed: int
) -> Distilled:
    """Distil a teacher on texts; a rerun continues.

    Args:
        teacher: The teacher.
        texts: The texts.
        settings: Settings of the distillation.
        work: Folder of everything that a rerun continues from.
        seed: Seed of the texts' order and the initial weights.

    Raises:
        ExportError: The settings do not fit the teacher or the texts, or the folder cannot be
            used.
    """
    module = teacher.module
    config = module.transformer.config
    shape = choose_shape(config, settings.layers, settings.dimension, settings.heads)
    if settings.epochs and len(texts.training) < settings.batch:
        raise ExportError(
            f"{counted(len(texts.training), 'text')} to train on {be(len(texts.training))} fewer "
            f"than a batch of {settings.batch}"
        )
    longest = min(LONGEST, teacher.longest)
    learner, embedder = TransformerLearner(teacher, longest), Embedder(work)
    teacher_digest = learner.embedding_digest
    recipe = {
        "teacher": teacher_digest,
        "texts": digest([*texts.training, *texts.vocabulary]),
        **asdict(settings),
    }
    run = work / f"student-{digest([json.dumps([recipe, seed], sort_keys=True)])}"
    vocabulary = choose_vocabulary(teacher, texts, settings.vocabulary, settings.trim, longest)
    pieces = vocabulary.encode(texts.training, longest)

    fits = (shape.dimension, shape.heads) == (config.hidden_size, config.num_attention_heads)
    is_copy = settings.vocabulary is None and fits
    # Trimming alone needs no embeddings of the teacher: it takes a minute, not many.
    imitated = texts.training if settings.epochs or not is_copy else []
    label = "embedding with the teacher"
    embeddings = embedder.stream(learner, teacher_digest, imitated, label)
    reference = embedder.embed(learner, teacher_digest, texts.held_out, label)
    down = projection(embeddings, shape.dimension)
    targets = np.empty((len(embeddings), shape.dimension), dtype=np.float32)
    for part in _parts(len(embeddings)):
        targets[part] = embeddings[part] @ down
    held_out_targets = reference @ down
    if module.normalize:
        targets, held_out_targets = unit(targets), unit(held_out_targets)

    if is_copy:
        student = _copy_teacher(module, shape.layers, vocabulary)
    else:
        vectors = piece_vectors(pieces, targets, vocabulary.size)
        bert = make_student(shape, vectors, seed, vocabulary.pad_id)
        student = SentenceEncoder(bert, "mean", module.normalize)
    steps = 0
    if settings.epochs:
        rate = settings.learning_rate or _RATES[is_copy]
        loop = LoopSettings(settings.epochs, rate, settings.batch, warm_up=_WARM_UP)
        history = Training(loop, run, seed, recipe, resume=True).run(
            Imitation(student, float(np.square(targets).sum(axis=1).mean())),
            TextBatches(pieces, targets, settings.batch, vocabulary.pad_id, seed),
        )
        steps = history.steps
    if not is_copy:
        average_untrained_positions(student.transformer, longest)
    encoder = Encoder(
        module=student.eval(),
        tokenizer=vocabulary.tokenizer,
        pad_id=vocabulary.pad_id,
        longest=teacher.longest if is_copy else shape.positions,
    )
    save_encoder(encoder, run / "model")
    measured = figures(encoder.encode(texts.held_out, longest), held_out_targets, reference)
    return Distilled(encoder, run / "model", {**measured, "steps": steps})


def _copy_teacher(teacher: SentenceEncoder, layers: int, vocabulary: Vocabulary) -> SentenceEncoder:
    student = copy.deepcopy(teacher)
    keep_layers(student.transformer, layers)
    if vocabulary.old_ids is not None:
        keep_pieces(student.transformer, vocabulary.old_ids, vocabulary.pad_id)
    return student


def digest(texts: Iterable[str]) -> str:
    """Short digest of a list of texts, to name the results computed from it."""
    sha = hashlib.sha256()
    for text in texts:
        sha.update(text.encode())
        sha.update(b"\0")
    return sha.hexdigest()[:12]
