"""The recipe of the releases of ``fala.testing``: word vectors, and a transformer of 3 layers.

    python recipes/testing_releases.py --out sdk/fala/testing/releases

The word vectors are the most frequent ones of the built-in backbone, and those of the texts of
``fala.testing``. The transformer is taken from the present releases as it is. It was distilled from
all-MiniLM-L6-v2 on these texts and on the public ones of the built-in synthetic sample: 260,000
weights in three layers, 64 dimensions, 4 heads, 1,000 pieces, 40 epochs. Its manifest says so, with
its figures. Commit c4c5ae4a is the last one whose ``recipes/testing_releases.py`` trains it.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import click

from fala import Bundle
from fala.backbones.word_vectors import words
from fala.bundle.arrays import array_bytes, read_array
from fala.bundle.format import SCALES, VECTORS, VOCABULARY
from fala.cli import Command
from fala.testing import LABELS, RELEASES, texts
from fala.testing import write_releases as write_packaged
from fala_export import add_bridge, write_bundle, write_release
from fala_export.fit.bridge import fit_bridge
from fala_export.fit.heads import fit_head
from fala_sim.playground.releases import backbone_alone, built_in

#: Words of the built-in vectors that are kept, by falling frequency.
WORDS = 1_000


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
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the files.")
def main(out: Path) -> None:
    """Write the releases of ``fala.testing`` again."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        glove = Path(folder) / "glove.fala"
        write_vectors(glove)
        bert = Bundle.open(write_packaged(folder)["bert without a bridge"], hold=True)
        for path in write_releases(Bundle.open(glove), backbone_alone(bert), out):
            click.echo(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
