"""The recipe of the two sample releases that ship inside the package, and of the word vectors.

    python recipes/builtin.py --corpora DIR --work WORKDIR --out OUT

OUT is device_sim/fala_sim/playground/builtin. A rerun continues an interrupted one. ``samples.py``
is the last step alone: a head, words and a bridge on the backbones of the package.

The encoder of ``bert`` is taken from the package as it is. It was distilled from all-MiniLM-L6-v2
on the same corpora: three layers, 256 dimensions, 4 heads, 5,450 pieces of a vocabulary of 6,000,
five epochs of 60,000 texts. Its manifest says so, with its figures on held-out documents. Commit
c4c5ae4a is the last one whose ``recipes/builtin.py`` trains it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from corpus import CORPORA, documents
from fala import Bundle
from fala.base.errors import install_hint
from fala.cli import Command
from fala_export.base.errors import ExportError
from fala_export.bundle.writing import versions
from fala_export.cli.summary import text_of
from fala_export.recipe.settings import VectorOptions
from fala_export.vectors.word_vectors import export_word_vectors
from fala_sim.playground.releases import built_in
from glove import GloveSettings, train_glove
from samples import write_samples


def build_builtin(
    corpora: Path, work: Path, out: Path, seed: int, glove: GloveSettings | None = None
) -> dict[str, Any]:
    """Train the word vectors, and make ``glove.fala`` and ``bert.fala``; a rerun continues.

    Args:
        corpora: Folder of nltk_data's archives, see ``corpus.py``.
        work: Folder of checkpoints and of the backbone: some gigabytes, never shipped.
        out: Folder of the two releases.
        seed: The random seed.
        glove: Settings of the word vectors; None for those of the shipped ones.

    Returns:
        A summary of the word vectors.

    Raises:
        ExportError: An archive or torch is missing, or a folder cannot be made.
    """
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
        vectors, figures = train_glove(corpus, work, seed, glove or GloveSettings())
    except ImportError as error:
        raise ExportError(f"to train the vectors: {install_hint('export')} ({error})") from error
    summary = export_word_vectors(
        vectors,
        work / "glove.fala",
        VectorOptions(),
        name="glove",
        details={
            **origin,
            "recipe": "GloVe (Pennington et al. 2014), trained on the corpora",
            "figures": figures,
            "versions": versions("torch", "numpy"),
        },
    )
    write_samples(Bundle.open(work / "glove.fala"), built_in("bert"), out)
    return summary


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
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def main(corpora: Path, work: Path, out: Path, seed: int, as_json: bool) -> None:
    """Train the word vectors, and pack both releases of the package; a rerun continues."""
    summary = build_builtin(corpora, work, out, seed)
    click.echo(json.dumps(summary, indent=2) if as_json else text_of(summary))


if __name__ == "__main__":
    main()
