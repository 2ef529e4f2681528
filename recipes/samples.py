"""The recipe of the two sample releases: a head, words and a bridge on the built-in backbones.

    python recipes/samples.py --out device_sim/fala_sim/playground/builtin

The vendor's rows are the public ones of the built-in synthetic sample. ``builtin.py`` ends with
this step; this command keeps the backbones of the package's releases. The same backbones give the
same bytes on the same kind of processor.
"""

from __future__ import annotations

from pathlib import Path

import click

from fala import Bundle
from fala.cli import Command
from fala_export import add_bridge, write_release
from fala_export.fit.bridge import fit_bridge
from fala_export.fit.heads import fit_head
from fala_export.fit.probes import expected_answers
from fala_sim.playground.releases import built_in
from fala_sim.playground.sample import sample_rows


def write_samples(old: Bundle, new: Bundle, out: Path) -> list[Path]:
    """Write both sample releases, the second with a bridge from the first.

    Args:
        old: The backbone of word vectors.
        new: The transformer.
        out: The folder of the files; their names are the backbones'.

    Returns:
        The files.
    """
    rows = sample_rows(users=1).public
    texts = [str(row.example) for row in rows]
    labels = [row.label for row in rows]
    about = f"fitted on {len(rows)} public rows of the built-in synthetic sample"
    paths, embeddings = [], []
    for bundle in (old, new):
        backbone = bundle.backbone()
        embeddings.append(backbone.encode(texts))
        by_text = dict(zip(texts, embeddings[-1], strict=True))
        head = fit_head(backbone, texts, labels, embeddings=by_text)
        paths.append(out / f"{bundle.manifest.name}.fala")
        details = {"head": about, "probes": expected_answers(backbone, head)}
        write_release(paths[-1], bundle, head, details)
    bridge = fit_bridge(old.backbone_digest, *embeddings)
    learned = {"from": old.manifest.name, "text": f"learned on {len(texts)} public texts"}
    add_bridge(paths[-1], Bundle.open(paths[-1]), bridge, learned)
    return paths


@click.command(cls=Command)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the files.")
def main(out: Path) -> None:
    """Write the sample releases again, on the backbones that come with the package."""
    out.mkdir(parents=True, exist_ok=True)
    for path in write_samples(built_in("glove"), built_in("bert"), out):
        click.echo(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
