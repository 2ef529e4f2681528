"""The recipe of the releases of ``fala.testing``: word vectors, and a transformer of 3 layers.

    python recipes/testing_releases.py --work WORKDIR --out sdk/fala/testing/releases

The word vectors are the most frequent ones of the built-in backbone, and those of the texts of
``fala.testing``. The transformer is distilled from all-MiniLM-L6-v2 on these texts and on the
public ones of the built-in synthetic sample. A rerun continues an interrupted one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from builtin import load_teacher
from fala import Bundle
from fala.backbones.word_vectors import words
from fala.bundle.arrays import array_bytes, read_array
from fala.bundle.format import SCALES, VECTORS, VOCABULARY
from fala.cli import Command
from fala.testing import LABELS, RELEASES, texts
from fala_export import add_bridge, write_bundle, write_release
from fala_export.backbone import export_encoder
from fala_export.families.distillation.settings import Distillation
from fala_export.families.distillation.texts import Texts
from fala_export.families.distillation.training import distil
from fala_export.fitting.bridge import fit_bridge
from fala_export.fitting.heads import fit_head
from fala_export.settings import ExportOptions
from fala_sim.playground.releases import built_in
from fala_sim.playground.sample import sample_rows

#: Words of the built-in vectors that are kept, by falling frequency.
WORDS = 1_000
#: The transformer: 260,000 weights.
STUDENT = Distillation(layers=3, dimension=64, heads=4, vocabulary=1_000, epochs=40, batch=32)
#: Each third text is held out, for the figures of the distillation.
HELD_OUT = 3


def write_vectors(path: Path) -> None:
    """Write the backbone of word vectors."""
    source = built_in("glove")
    vocabulary = source.read(VOCABULARY).decode().splitlines()
    used = {word for text in texts() for word in words(text)}
    kept = [row for row, word in enumerate(vocabulary) if row < WORDS or word in used]
    files = {
        name: array_bytes(read_array(source.read(name))[kept]) for name in (VECTORS, SCALES)
    } | {VOCABULARY: "".join(f"{vocabulary[row]}\n" for row in kept).encode()}
    details = {**source.manifest.details, "recipe": f"{len(kept)} words of the built-in vectors"}
    write_bundle(path, replace(source.manifest, details=details, files={}), files)


def write_transformer(path: Path, work: Path) -> None:
    """Distil the transformer, and write its backbone."""
    every = [*texts(), *(str(row.example) for row in sample_rows(users=1).public)]
    student = distil(load_teacher(), Texts(every, every[::HELD_OUT], every), STUDENT, work, seed=0)
    details = {
        "recipe": "three-layer BERT distilled from all-MiniLM-L6-v2 on texts of fala.testing",
        "teacher_licence": "Apache-2.0",
        "figures": student.figures,
    }
    options = ExportOptions(name="bert", max_length=student.encoder.longest, details=details)
    export_encoder(student.encoder, path, options)


def write_releases(glove: Bundle, bert: Bundle, out: Path) -> list[Path]:
    """Write the four releases: heads on half of the texts each, and a bridge.

    Args:
        glove: The backbone of word vectors.
        bert: The transformer.
        out: The folder of the files.

    Returns:
        The files.
    """
    public = texts()
    labels = [LABELS[number % 2] for number in range(len(public))]
    first, second = slice(0, len(public) // 2), slice(len(public) // 2, None)
    paths = []
    for name, bundle, rows in (
        ("glove", glove, first), ("glove 2", glove, second),
        ("bert", bert, first), ("bert without a bridge", bert, first),
    ):  # fmt: skip
        head = fit_head(bundle.backbone(), public[rows], labels[rows])
        paths.append(out / RELEASES[name])
        write_release(paths[-1], bundle, head, {"head": f"fitted on {len(public[rows])} texts"})
    embeddings = [bundle.backbone().encode(public) for bundle in (glove, bert)]
    bridge = fit_bridge(glove.backbone_digest, *embeddings)
    path = out / RELEASES["bert"]
    add_bridge(path, Bundle.open(path), bridge, {"from": "glove", "text": "learned on the texts"})
    return paths


@click.command(cls=Command)
@click.option(
    "--work", required=True, type=click.Path(path_type=Path), help="Folder of the checkpoints."
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the files.")
def main(work: Path, out: Path) -> None:
    """Train and pack the releases of ``fala.testing``; a rerun continues."""
    for folder in (work, out):
        folder.mkdir(parents=True, exist_ok=True)
    backbones = work / "glove.fala", work / "bert.fala"
    write_vectors(backbones[0])
    write_transformer(backbones[1], work)
    for path in write_releases(Bundle.open(backbones[0]), Bundle.open(backbones[1]), out):
        click.echo(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
