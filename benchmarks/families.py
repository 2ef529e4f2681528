"""Parity, size and speed of a bundle of each family of encoders, with random weights.

    python benchmarks/families.py
    python benchmarks/families.py --family modernbert --family qwen3 --layers 12 --width 768

The models are random, so the figures show the graph and its quantization, not what was learned. The
families are those of the tests; one that the installed transformers lacks is left out. Parity is
the cosine to PyTorch in float32, the fastest of a few rounds on one thread is a text's time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from support.measuring import benchmark


@benchmark
@click.option("--family", "names", multiple=True, help="A family; again for more. Default: all.")
@click.option("--quantize", "precision", default="int8", show_default=True)
@click.option("--layers", type=click.IntRange(1), default=2, show_default=True)
@click.option("--width", type=click.IntRange(32), default=32, show_default=True)
def main(names: Sequence[str], precision: str, layers: int, width: int) -> dict[str, Any]:
    """Export a random model of each family."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    from fala_export.bundle.backbone import export_encoder
    from fala_export.models.load import load
    from fala_export.recipe.settings import ExportOptions
    from families import FAMILIES, LATER, READS_FORWARDS, write_model

    options = ExportOptions(name="x", precision=precision, min_cosine=-1)
    record: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for family in names or [*FAMILIES, *LATER]:
            if family not in MODEL_MAPPING_NAMES:
                continue
            # Sizes of families that name them otherwise stay those of the tests.
            sizes = {} if (layers, width) == (2, 32) else {
                "num_hidden_layers": layers, "hidden_size": width, "intermediate_size": 4 * width,
            }  # fmt: skip
            model = write_model(Path(folder) / family, family, **sizes)
            pooling = "lasttoken" if family in READS_FORWARDS else "own"
            summary = export_encoder(load(str(model), pooling), Path(folder) / "x.fala", options)
            parity = summary["parity"]
            record[family] = {
                "mean_cosine": parity["mean_cosine"],
                "worst_cosine": parity["worst_cosine"],
                "megabytes": summary["megabytes"],
                "milliseconds": parity["speed"]["milliseconds"],
            }
    return {"precision": precision, "families": len(record), **record}


if __name__ == "__main__":
    main()
