"""The recipe of the two models that ship inside the package."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fala.errors import ExportError
from fala_export.backbone import ExportOptions, export_encoder, load, versions
from fala_export.corpus import CORPORA, documents
from fala_export.distill import Distillation, distil
from fala_export.glove import GloveSettings, train_glove
from fala_export.word_vectors import export_word_vectors


@dataclass(frozen=True)
class Recipe:
    """Settings of both models."""

    glove: GloveSettings = field(default_factory=GloveSettings)
    bert: Distillation = field(default_factory=Distillation)


def build_builtin(
    corpora: Path, work: Path, out: Path, seed: int, recipe: Recipe | None = None
) -> list[dict[str, Any]]:
    """Train and pack ``glove.fala`` and ``bert.fala``; a rerun continues an interrupted one.

    Args:
        corpora: Folder of nltk_data's archives, see ``fala_export.corpus``.
        work: Folder of checkpoints and of the teacher's embeddings: gigabytes at most, and
            never part of what is shipped.
        out: Folder of the two bundles.
        seed: Of everything random.
        recipe: Other settings than those of the shipped models.

    Returns:
        What was written, one summary a bundle.

    Raises:
        ExportError: An archive, the teacher or torch is missing, or a folder cannot be made.
    """
    recipe = recipe or Recipe()
    try:
        work.mkdir(parents=True, exist_ok=True)
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"{error.filename}: cannot be made: {error.strerror}") from error
    texts = list(documents(corpora))
    origin = {
        "corpora": {corpus.name: corpus.licence for corpus in CORPORA},
        "corpora_source": "nltk_data",
        "seed": seed,
    }
    try:
        vectors, glove_figures = train_glove(texts, work, seed, recipe.glove)
        student, bert_figures = distil(texts, work, seed, recipe.bert)
    except ImportError as error:
        raise ExportError(f"install fala[export] to train the models ({error})") from error
    return [
        export_word_vectors(
            vectors,
            out / "glove.fala",
            "int8",
            name="glove",
            details={
                **origin,
                "recipe": "GloVe (Pennington et al. 2014), trained on the corpora",
                "figures": glove_figures,
                "versions": versions("torch", "numpy"),
            },
        ),
        export_encoder(
            load(str(student)),
            out / "bert.fala",
            ExportOptions(
                name="bert",
                max_length=recipe.bert.shape.positions,
                details={
                    **origin,
                    "recipe": "three-layer BERT distilled on the corpora from all-MiniLM-L6-v2",
                    "teacher_licence": "Apache-2.0",
                    "figures": bert_figures,
                },
            ),
        ),
    ]
