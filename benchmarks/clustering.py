"""Time and memory of correlation clustering, beside k-means with as many clusters.

    python benchmarks/clustering.py
    python benchmarks/clustering.py --examples 2000 --json

Both run in this process, one after the other, with the same threads, on the same synthetic
vectors. k-means is scikit-learn's, started once from k-means++, for at most 25 steps, which is what
`fala.selection` gives it.
"""

from __future__ import annotations

import os
import resource
import sys
import time

import click
import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from support.measuring import report

from fala.release import build_graph, cluster_graph, disagreements, unit_vectors

KMEANS_STEPS = 25


def synthetic(
    examples: int, dimension: int, groups: int, seed: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Draw vectors round random centres, as far from them as the centres are long, and labels."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((groups, dimension), dtype=np.float32)
    embeddings = random.standard_normal((examples, dimension), dtype=np.float32)
    embeddings += centres[random.integers(groups, size=examples)]
    return embeddings, (embeddings[:, 0] > 0).astype(np.int64)


def peak_megabytes() -> float:
    """Largest resident memory of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


@click.command(help=__doc__)
@click.option("--examples", default=10_000, show_default=True, help="Vectors to cluster.")
@click.option("--dimension", default=384, show_default=True, help="Entries of a vector.")
@click.option("--groups", default=300, show_default=True, help="Centres they lie round.")
@click.option("--neighbours", default=30, show_default=True, help="k of the strong signal.")
@click.option("--budget", default=100, show_default=True, help="Strong queries an example.")
@click.option("--seed", default=0, show_default=True, help="Seed of the data and the clustering.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(
    examples: int,
    dimension: int,
    groups: int,
    neighbours: int,
    budget: int,
    seed: int,
    as_json: bool,
) -> None:
    """Run both and print what they took."""
    embeddings, labels = synthetic(examples, dimension, groups, seed)
    before = peak_megabytes()
    start = time.perf_counter()
    graph = build_graph(embeddings, labels, neighbours=neighbours)
    built = time.perf_counter()
    made = cluster_graph(graph, budget=budget * examples, seed=seed)
    clustered = time.perf_counter()
    peak = peak_megabytes()
    unit = unit_vectors(embeddings)
    peer_start = time.perf_counter()
    KMeans(len(made.pivots), n_init=1, max_iter=KMEANS_STEPS, random_state=seed).fit(unit)
    peer_seconds = time.perf_counter() - peer_start
    record = {
        "examples": examples,
        "dimension": dimension,
        "neighbours": neighbours,
        "cores": os.cpu_count(),
        "graph_seconds": round(built - start, 3),
        "cluster_seconds": round(clustered - built, 3),
        "seconds": round(clustered - start, 3),
        "megabytes_before": round(before),
        "peak_megabytes": round(peak),
        "clusters": len(made.pivots),
        "queries": made.queries,
        "disagreements": disagreements(made.assignment, graph),
        "positive_pairs": len(graph.edges),
        "kmeans_seconds": round(peer_seconds, 3),
        "ratio_to_kmeans": round((clustered - start) / peer_seconds, 2),
    }
    report(record, as_json=as_json)


if __name__ == "__main__":
    main()
