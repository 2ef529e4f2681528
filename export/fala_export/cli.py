"""The command ``fala-export``: models in, bundles out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from fala.cli_errors import Group

_OUT = click.option(
    "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="Bundle to write."
)
_NAME = click.option("--name", help="Name in the manifest (default: the source's).")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")


@click.group("fala-export", cls=Group)
@click.version_option(package_name="fala")
def main() -> None:
    """Turn models into bundles for FaLA's devices."""


@main.command()
@click.argument("source", metavar="DIR_OR_NAME")
@_OUT
@click.option("--quantize", type=click.Choice(["int8", "none"]), default="int8", show_default=True)
@_NAME
@click.option("--max-length", type=int, default=128, show_default=True, help="Tokens read.")
@click.option(
    "--pooling",
    type=click.Choice(["mean", "cls"]),
    help="Default: as the model's sentence-transformers files say, or the mean.",
)
@click.option(
    "--parity-text",
    type=click.Path(path_type=Path),
    help="Texts, one a line, to compare the bundle with the model on.",
)
@_JSON
def backbone(
    source: str,
    out: Path,
    quantize: str,
    name: str | None,
    max_length: int,
    pooling: str | None,
    parity_text: Path | None,
    as_json: bool,
) -> None:
    """Export a Hugging Face encoder of the BERT family."""
    from fala_export.backbone import BackboneOptions, export_backbone

    options = BackboneOptions(
        quantize=quantize,
        name=name,
        max_length=max_length,
        pooling=pooling,
        parity_text=parity_text,
    )
    _report(lambda: [export_backbone(source, out, options)], as_json)


@main.command("word-vectors")
@click.argument("source", type=click.Path(path_type=Path))
@_OUT
@click.option(
    "--precision", type=click.Choice(["int8", "float16"]), default="int8", show_default=True
)
@click.option("--top", type=click.IntRange(min=1), help="Only the file's first words.")
@_NAME
@_JSON
def word_vectors(
    source: Path, out: Path, precision: str, top: int | None, name: str | None, as_json: bool
) -> None:
    """Export static word vectors in GloVe's text format."""
    from fala_export.word_vectors import export_word_vectors

    _report(lambda: [export_word_vectors(source, out, precision, top=top, name=name)], as_json)


@main.command()
@click.option(
    "--corpora", required=True, type=click.Path(path_type=Path), help="Folder of nltk_data's zips."
)
@click.option(
    "--work", required=True, type=click.Path(path_type=Path), help="Folder of the checkpoints."
)
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="Folder of the two bundles."
)
@click.option("--seed", type=int, default=0, show_default=True)
@_JSON
def builtin(corpora: Path, work: Path, out: Path, seed: int, as_json: bool) -> None:
    """Train and pack the two models that ship with the package; a rerun continues."""

    def build() -> list[dict[str, Any]]:
        from fala_export.builtin import build_builtin

        return build_builtin(corpora, work, out, seed)

    _report(build, as_json)


def _report(export: Callable[[], list[dict[str, Any]]], as_json: bool) -> None:
    summaries = export()
    if as_json:
        click.echo(json.dumps(summaries if len(summaries) > 1 else summaries[0], indent=2))
        return
    for summary in summaries:
        click.echo(f"{summary['bundle']}:")
        for key, value in summary.items():
            if key == "parity":
                click.echo(
                    f"  parity with the fp32 model: cosine {value['mean_cosine']:.4f} in the mean, "
                    f"{value['worst_cosine']:.4f} at worst, over {value['texts']} texts"
                )
            elif key == "damaged_lines" and value:
                click.echo(
                    f"  damaged lines left out: {value}; the first is {summary['first_damage']}"
                )
            elif key not in ("bundle", "first_damage", "damaged_lines"):
                click.echo(f"  {key}: {value}")
