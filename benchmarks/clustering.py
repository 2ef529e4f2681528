"""Time and memory of correlation clustering, beside k-means with as many clusters.

    python benchmarks/clustering.py
    python benchmarks/clustering.py --examples 2000 --json

Both run in this process, one after the other, with the same threads, on the same synthetic
vectors. k-means is scikit-learn's, started once from k-means++, for at most 25 steps.
"""

from __future__ import annotations

import os
import time
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from support.measuring import benchmark, peak_megabytes, seconds_of

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


@benchmark
@click.option("--examples", default=10_000, show_default=True, help="Vectors to cluster.")
@click.option("--dimension", default=384, show_default=True, help="Entries of a vector.")
@click.option("--groups", default=300, show_default=True, help="Centres they lie round.")
@click.option("--neighbours", default=30, show_default=True, help="k of the strong signal.")
@click.option("--budget", default=100, show_default=True, help="Strong queries an example.")
def main(
    examples: int, dimension: int, groups: int, neighbours: int, budget: int, seed: int
) -> dict[str, Any]:
    """Run both and say what they took."""
    embeddings, labels = synthetic(examples, dimension, groups, seed)
    before = peak_megabytes()
    start = time.perf_counter()
    graph = build_graph(embeddings, labels, neighbours=neighbours)
    built = time.perf_counter() - start
    clusters = cluster_graph(graph, budget=budget * examples, seed=seed)
    seconds = time.perf_counter() - start
    peak = peak_megabytes()
    unit = unit_vectors(embeddings)
    means = KMeans(len(clusters.pivots), n_init=1, max_iter=KMEANS_STEPS, random_state=seed)
    peer, _ = seconds_of(lambda: means.fit(unit))
    return {
        "cores": os.cpu_count(),
        "graph_seconds": built,
        "seconds": seconds,
        "megabytes_before": before,
        "peak_megabytes": peak,
        "clusters": len(clusters.pivots),
        "queries": clusters.queries,
        "disagreements": disagreements(clusters.assignment, graph),
        "positive_pairs": len(graph.edges),
        "kmeans_seconds": peer,
        "ratio_to_kmeans": seconds / peer,
    }


if __name__ == "__main__":
    main()
