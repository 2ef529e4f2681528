"""Differences of one bundle's embeddings and logits on two machines.

    python benchmarks/logits.py --save here.npz                       # on the one
    python benchmarks/logits.py --beside here.npz                     # on the other
    python benchmarks/logits.py --bundle minilm.fala --beside here.npz --json

The saved file has the texts, their embeddings and a head fitted to them. The other machine encodes
the same texts with the same bundle, and applies the same head. So only the backbone's arithmetic
differs: int8 uses other instructions on another kind of processor. Without --beside the machine is
compared with itself, where each text is encoded alone.

The margin is the logit of the second of two labels. Its differences are reported as logits and in
standard deviations of the margin. Rank agreement is the share of pairs of texts with unequal
margins that are in the same order on both.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnxruntime
from numpy.typing import NDArray
from support.documents import bundle_of, documents_of
from support.measuring import benchmark

import fala
import fala_export

Arrays = dict[str, NDArray[Any]]


def measure(bundle: fala.Bundle, count: int, seed: int) -> Arrays:
    """Texts, their embeddings on this machine, and a head fitted to them."""
    texts, labels = documents_of(count, seed)
    backbone = bundle.backbone()
    head = fala_export.fit_head(backbone, texts, labels).without_ngrams()
    embeddings = np.asarray(backbone.encode(texts))
    return {
        "texts": np.array(texts),
        "weight": head.weight,
        "bias": head.bias,
        "embeddings": embeddings,
        "machine": np.array([platform.machine(), onnxruntime.__version__]),
        "digest": np.array([bundle.backbone_digest]),
    }


def margins(embeddings: NDArray[Any], saved: Arrays) -> NDArray[np.float64]:
    """The logits (n,) of the saved head."""
    logits: NDArray[np.float64] = embeddings.astype(np.float64) @ saved["weight"][0]
    return logits + saved["bias"][0]


def compare(embeddings: NDArray[Any], saved: Arrays) -> dict[str, float]:
    """Differences of embeddings (n, d), and of their margins, from the saved ones."""
    reference = saved["embeddings"]
    ours, theirs = margins(embeddings, saved), margins(reference, saved)
    differences = np.abs(ours - theirs)
    lengths = np.linalg.norm(embeddings, axis=1) * np.linalg.norm(reference, axis=1)
    cosines = (embeddings.astype(np.float64) * reference).sum(axis=1) / lengths
    first, second = np.triu_indices(len(ours), 1)
    unequal = theirs[first] != theirs[second]
    ordered = np.sign(ours[first] - ours[second]) == np.sign(theirs[first] - theirs[second])
    return {
        "texts": len(ours),
        "cosine": float(cosines.min()),
        "largest_difference": float(differences.max()),
        "largest_in_deviations": float(differences.max() / theirs.std()),
        "rank_agreement": float(ordered[unequal].mean()),
        "other_labels": int(((ours > 0) != (theirs > 0)).sum()),
    }


@benchmark
@click.option("--bundle", "name", default="bert", show_default=True, help="Built-in or a file.")
@click.option("--texts", "count", type=click.IntRange(2), default=200, show_default=True)
@click.option("--save", type=click.Path(path_type=Path), help="Save this machine's arrays.")
@click.option("--beside", type=click.Path(exists=True, path_type=Path), help="Those of another.")
def main(
    name: str, count: int, seed: int, save: Path | None, beside: Path | None
) -> dict[str, Any]:
    """Compare one bundle's embeddings and logits on two machines."""
    bundle = bundle_of(name)
    if beside is None:
        saved = measure(bundle, count, seed)
        if save is not None:
            np.savez(save, **saved)
    else:
        with np.load(beside) as arrays:
            saved = dict(arrays)
    if saved["digest"][0] != bundle.backbone_digest:
        raise click.UsageError(f"{beside} is of another bundle than {name}")
    texts = [str(text) for text in saved["texts"]]
    backbone = bundle.backbone()
    if beside is None:
        embeddings = np.concatenate([np.asarray(backbone.encode([text])) for text in texts])
    else:
        embeddings = np.asarray(backbone.encode(texts))
    machine = f"{platform.machine()} (onnxruntime {onnxruntime.__version__})"
    reference = "{} (onnxruntime {})".format(*saved["machine"])
    return {**compare(embeddings, saved), "machine": machine, "beside": reference}


if __name__ == "__main__":
    main()
