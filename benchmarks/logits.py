"""Embeddings and logits of one bundle on two machines: how far apart they are.

    python benchmarks/logits.py --save here.npz                       # on the one
    python benchmarks/logits.py --beside here.npz                     # on the other
    python benchmarks/logits.py --bundle minilm.fala --beside here.npz --json

What is saved has the texts and a head, fitted there, beside the embeddings and logits: the other
machine reads the same texts with the same bundle, and its embeddings go through that same head.
So all that differs is the backbone's arithmetic, which in int8 is other instructions on another
kind of processor. Without --beside the machine is compared with itself, texts read one at a time.

The margin is the logit of the second of two labels. Its differences are given as they are and in
standard deviations of the margin; rank agreement is the share of pairs of texts, of unequal
margins, that are in the same order on both.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnxruntime
from numpy.typing import NDArray
from support.documents import BUNDLE, bundle_of, documents_of
from support.measuring import benchmark

import fala

Arrays = dict[str, NDArray[Any]]


def measure(bundle: fala.Bundle, count: int, seed: int) -> Arrays:
    """Texts, a head fitted to them, and what this machine makes of them."""
    texts, labels = documents_of(count, seed)
    backbone = bundle.backbone()
    head = fala.fit_head(backbone, texts, labels).without_words()
    embeddings = np.asarray(backbone.encode(texts))
    return {
        "texts": np.array(texts),
        "weight": head.weight,
        "bias": head.bias,
        "embeddings": embeddings,
        "machine": np.array([platform.machine(), onnxruntime.__version__]),
        "digest": np.array([bundle.backbone_digest]),
    }


def margins(embeddings: NDArray[Any], there: Arrays) -> NDArray[np.float64]:
    """The logits (n,) by the head that was saved."""
    logits: NDArray[np.float64] = embeddings.astype(np.float64) @ there["weight"][0]
    return logits + there["bias"][0]


def compare(own: NDArray[Any], there: Arrays) -> dict[str, float]:
    """How far this machine's embeddings (n, d), and their margins, are from the other's."""
    other = there["embeddings"]
    ours, theirs = margins(own, there), margins(other, there)
    apart = np.abs(ours - theirs)
    lengths = np.linalg.norm(own, axis=1) * np.linalg.norm(other, axis=1)
    cosines = (own.astype(np.float64) * other).sum(axis=1) / lengths
    first, second = np.triu_indices(len(ours), 1)
    unequal = theirs[first] != theirs[second]
    ordered = np.sign(ours[first] - ours[second]) == np.sign(theirs[first] - theirs[second])
    deviation = float(theirs.std())
    return {
        "texts": len(ours),
        "cosine": float(cosines.min()),
        "mean_cosine": float(cosines.mean()),
        "largest_embedding_difference": float(np.abs(own - other).max()),
        "largest_difference": float(apart.max()),
        "mean_difference": float(apart.mean()),
        "deviation": deviation,
        "largest_in_deviations": float(apart.max() / deviation),
        "rank_agreement": float(ordered[unequal].mean()),
        "other_labels": int(((ours > 0) != (theirs > 0)).sum()),
    }


@benchmark
@BUNDLE
@click.option("--texts", "count", type=click.IntRange(2), default=200, show_default=True)
@click.option("--save", type=click.Path(path_type=Path), help="Keep this machine's for another.")
@click.option("--beside", type=click.Path(exists=True, path_type=Path), help="Another machine's.")
def main(
    name: str, count: int, seed: int, save: Path | None, beside: Path | None
) -> dict[str, Any]:
    """Compare what two machines make of one bundle."""
    bundle = bundle_of(name)
    if beside is None:
        there = measure(bundle, count, seed)
        if save is not None:
            np.savez(save, **there)
    else:
        with np.load(beside) as saved:
            there = dict(saved)
    if there["digest"][0] != bundle.backbone_digest:
        raise click.UsageError(f"{beside} is of another bundle than {name}")
    texts = [str(text) for text in there["texts"]]
    backbone = bundle.backbone()
    if beside is None:
        own = np.concatenate([np.asarray(backbone.encode([text])) for text in texts])
    else:
        own = np.asarray(backbone.encode(texts))
    machine = f"{platform.machine()} (onnxruntime {onnxruntime.__version__})"
    other = "{} (onnxruntime {})".format(*there["machine"])
    return {**compare(own, there), "machine": machine, "beside": other}


if __name__ == "__main__":
    main()
