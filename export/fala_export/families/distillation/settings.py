"""Settings of a distillation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import click

from fala_export.options import Count, File, Folder, Only, Positive, Seed
from fala_export.settings import ExportOptions, ModelSource


@dataclass(frozen=True)
class Distillation:
    """How a teacher becomes a student.

    A student of the teacher's dimension, heads and tokenizer starts as the teacher with fewer
    layers and pieces; any other starts as a new BERT.

    Attributes:
        layers: Transformer layers (default: the teacher's).
        dimension: Length of an embedding (default: the teacher's).
        heads: Attention heads a layer (default: the teacher's, or heads of about 64).
        vocabulary: Learn a WordPiece vocabulary of this many pieces (default: keep the teacher's).
        trim: Keep only this many of the vocabulary's most used pieces.
        epochs: Passes over the texts; 0 leaves the student untrained.
        batch: Texts per step.
        learning_rate: At its peak (default: 0.0001 for the teacher's layers, 0.001 for new ones).
    """

    layers: Count | None = None
    dimension: Annotated[Count | None, "--dim"] = None
    heads: Count | None = None
    vocabulary: Annotated[Count | None, "--vocab"] = None
    trim: Count | None = None
    epochs: Annotated[int, click.IntRange(min=0)] = 5
    batch: Count = 64
    learning_rate: Positive | None = None


@dataclass(frozen=True, kw_only=True)
class StudentRelease:
    """A teacher, and the release that is made of it.

    Attributes:
        texts: Texts to imitate the teacher on, one a line, plain or .gz, or a file of rows, its
            public ones; may be given again.
        work: Folder of the checkpoints and the teacher's embeddings.
        out: Bundle to write.
        data: Rows of a real task, whose public ones measure how much of the teacher survives.
        skip_bad_rows: Leave rows out that cannot be read, and print their number and lines.
        seed: Seed of everything random.
    """

    teacher: Annotated[ModelSource, Only("source", "revision", "ignore", "prompt")]
    texts: Annotated[tuple[File, ...], "--texts"]
    work: Folder
    out: File
    data: File | None = None
    skip_bad_rows: bool = False
    distillation: Distillation
    seed: Seed = 0
    export: Annotated[ExportOptions, Only("name", "precision", "min_cosine")]
