"""Distil a large sentence encoder into a small one that ships with the package.

The student learns the teacher's sentence embeddings themselves (as in Reimers and Gurevych,
"Making Monolingual Sentence Embeddings Multilingual", EMNLP 2020), projected to the student's
dimension by the directions that keep most of their length. All of it resumes where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from numpy.typing import NDArray

from fala_export.corpus import Document, hold_out, sample_texts
from fala_export.encoder import Encoder
from fala_export.model_folder import save_encoder
from fala_export.student import (
    StudentShape,
    average_untrained_positions,
    keep_pieces,
    make_student,
    piece_vectors,
)
from fala_export.teacher import LONGEST, Teacher, digest, embed_texts
from fala_export.wordpiece import PAD, drop_rare_pieces, train_wordpiece

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

    from fala_export.sentence_encoder import SentenceEncoder

Floats = NDArray[np.float32]

_POOL = 50  # batches that share a sorting by length: little padding, still random enough
_CHECKPOINT = 200  # steps between checkpoints: about a minute


@dataclass(frozen=True)
class Distillation:
    """Settings of a distillation.

    Attributes:
        texts: Texts that the teacher embeds for the training.
        held_out_texts: Texts of held-out documents, for the figures.
        epochs: Passes over the texts.
        batch: Texts a step.
        learning_rate: At its peak; it rises linearly and falls linearly to zero.
        warm_up: Steps of the rise.
        shape: The student's sizes.
    """

    texts: int = 60_000
    held_out_texts: int = 2_000
    epochs: int = 5
    batch: int = 64
    learning_rate: float = 1e-3
    warm_up: int = 100
    shape: StudentShape = field(default_factory=StudentShape)


def projection(embeddings: Floats, dimension: int) -> Floats:
    """Find the subspace that keeps most of the embeddings' squared length.

    Principal directions about the origin, not about the mean: cosines are what is kept.

    Args:
        embeddings: Shape (n, wide).
        dimension: Directions wanted.

    Returns:
        Shape (wide, dimension), orthonormal columns, the strongest direction first.
    """
    _, directions = np.linalg.eigh(embeddings.T.astype(np.float64) @ embeddings)
    return directions[:, ::-1][:, :dimension].astype(np.float32)


def plan_batches(lengths: Sequence[int], settings: Distillation, seed: int) -> Iterator[list[int]]:
    """Order the texts of every epoch into batches of similar length.

    Args:
        lengths: Pieces of each text.
        settings: Batch size and epochs.
        seed: Of the order; the same plan every time is what makes a rerun continue.

    Yields:
        The texts' indices, batch by batch.
    """
    rng = np.random.default_rng(seed)
    for _ in range(settings.epochs):
        order = rng.permutation(len(lengths))
        for start in range(0, len(order), settings.batch * _POOL):
            pool = sorted(order[start : start + settings.batch * _POOL], key=lengths.__getitem__)
            batches = [
                [int(index) for index in pool[first : first + settings.batch]]
                for first in range(0, len(pool), settings.batch)
            ]
            for index in rng.permutation(len(batches)):
                yield batches[index]


def pad(pieces: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Bring piece ids to one length.

    Returns:
        The ids and the mask, both of shape (n, longest).
    """
    import torch

    batch = torch.zeros(len(pieces), max(len(ids) for ids in pieces), dtype=torch.long)
    mask = torch.zeros_like(batch)
    for row, ids in enumerate(pieces):
        batch[row, : len(ids)] = torch.as_tensor(ids)
        mask[row, : len(ids)] = 1
    return batch, mask


def train_student(
    model: SentenceEncoder,
    pieces: Sequence[Sequence[int]],
    targets: Floats,
    settings: Distillation,
    seed: int,
    checkpoint: Path,
) -> int:
    """Train the student in place: AdamW on one minus the cosine to the target.

    Args:
        model: The student.
        pieces: Piece ids of n texts.
        targets: Shape (n, dim), of length 1.
        settings: Of the training.
        seed: Of the order of the texts.
        checkpoint: File to continue from and to write to, whole at every instant.

    Returns:
        Steps behind the student's weights.
    """
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.01)
    plan = list(plan_batches([len(ids) for ids in pieces], settings, seed))
    done = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]
    wanted = torch.from_numpy(targets)
    model.train()
    recent: list[float] = []
    for step in range(done, len(plan)):
        rise = (step + 1) / settings.warm_up
        fall = (len(plan) - step) / len(plan)
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * min(rise, fall)
        chosen = plan[step]
        batch, mask = pad([pieces[index] for index in chosen])
        loss = 1 - (model(batch, mask) * wanted[chosen]).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recent.append(loss.item())
        if (step + 1) % _CHECKPOINT == 0 or step + 1 == len(plan):
            _save_checkpoint(checkpoint, model, optimizer, step + 1)
            click.echo(
                f"student: step {step + 1} of {len(plan)}, cosine {1 - np.mean(recent):.4f}",
                err=True,
            )
            recent.clear()
    model.eval()
    return len(plan)


def _save_checkpoint(
    path: Path, model: SentenceEncoder, optimizer: torch.optim.Optimizer, step: int
) -> None:
    import torch

    unfinished = path.with_suffix(".part")
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
        unfinished,
    )
    unfinished.replace(path)


def embed_pieces(model: SentenceEncoder, pieces: Sequence[Sequence[int]]) -> Floats:
    """Embed texts with the student, outside of training.

    Returns:
        Shape (n, dim).
    """
    import torch

    with torch.inference_mode():
        parts = [
            model(*pad(pieces[start : start + 64])).numpy() for start in range(0, len(pieces), 64)
        ]
    return np.concatenate(parts)


def figures(student: Floats, targets: Floats, teacher: Floats) -> dict[str, float]:
    """Compare the student with the teacher on held-out texts.

    Args:
        student: Shape (n, dim), of length 1.
        targets: The teacher's projected embeddings, of length 1, same shape.
        teacher: The teacher's own embeddings, shape (n, wide).

    Returns:
        Mean cosine to the target, and Spearman's correlation of the cosines of all pairs
        of texts, student against unprojected teacher.
    """
    from scipy import stats

    upper = np.triu_indices(len(student), 1)
    ranks = stats.spearmanr((student @ student.T)[upper], (teacher @ teacher.T)[upper])
    return {
        "held_out_cosine": round(float((student * targets).sum(1).mean()), 4),
        "held_out_pair_spearman": round(float(ranks.statistic), 4),
    }


def _unit(rows: Floats) -> Floats:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def _tokenizer(corpus: list[Document], size: int, path: Path) -> Tokenizer:
    from tokenizers import Tokenizer as Saved

    if not path.exists():
        trained = train_wordpiece((text for document in corpus for text in document), size)
        unfinished = path.with_suffix(".part")
        trained.save(str(unfinished))
        unfinished.replace(path)
    return Saved.from_file(str(path))


def _encode(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    tokenizer.enable_truncation(LONGEST)
    pieces = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    tokenizer.no_truncation()
    return pieces


def distil(
    corpus: list[Document],
    work: Path,
    seed: int,
    settings: Distillation,
    teacher: Teacher | None = None,
) -> tuple[Path, dict[str, float]]:
    """Distil the teacher on a corpus.

    Args:
        corpus: Documents.
        work: Folder of everything that a rerun continues from.
        seed: Of the texts, their order and the first weights.
        settings: Of the distillation.
        teacher: Instead of all-MiniLM-L6-v2.

    Returns:
        The student's folder, in the form of sentence-transformers, and its held-out figures.
    """
    training, held_out = hold_out(corpus)
    texts = sample_texts(training, settings.texts, seed)
    held_out_texts = sample_texts(held_out, settings.held_out_texts, seed)
    recipe = json.dumps([asdict(settings), seed, digest(texts)], sort_keys=True)
    run = work / f"bert-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    run.mkdir(parents=True, exist_ok=True)

    tokenizer = _tokenizer(training, settings.shape.pieces, run / "tokenizer.json")
    pieces = _encode(tokenizer, texts)
    held_out_embeddings = embed_texts(held_out_texts, work, teacher)
    embeddings = embed_texts(texts, work, teacher)
    down = projection(embeddings, settings.shape.dimension)

    from fala_export.sentence_encoder import SentenceEncoder

    vectors = piece_vectors(pieces, embeddings @ down, settings.shape.pieces)
    bert = make_student(settings.shape, vectors, seed)
    model = SentenceEncoder(bert, "mean", normalize=True)
    targets = _unit(embeddings @ down)
    steps = train_student(model, pieces, targets, settings, seed, run / "checkpoint.pt")
    tokenizer, kept = drop_rare_pieces(tokenizer, pieces, settings.shape.shipped_pieces)
    keep_pieces(bert, kept)
    held_out_pieces = _encode(tokenizer, held_out_texts)
    measured = figures(
        embed_pieces(model, held_out_pieces), _unit(held_out_embeddings @ down), held_out_embeddings
    )
    average_untrained_positions(bert, LONGEST)
    save_encoder(
        Encoder(
            module=model,
            tokenizer=tokenizer.to_str().encode(),
            pad_id=tokenizer.token_to_id(PAD),
            longest=settings.shape.positions,
        ),
        run / "model",
    )
    return run / "model", {**measured, "steps": steps}
