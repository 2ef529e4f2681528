"""Time of a replacement's solve, beside one scipy.linalg.solve with as many unknowns.

    python benchmarks/solve.py
    python benchmarks/solve.py --threads 1 --json

The solve is the whole of it: checks, centring, eigendecomposition, exact leave-one-out over the
default grid of 33 lambdas, and theta and b at the best. The peers are a general matrix, and the
dual's own: symmetric and positive definite, which SciPy finds out and uses. They take turns with
it in this process, with the same threads; the figures are medians. On a busy machine the clock
tells what else ran, so processor time (of all threads, spinning ones too) stands beside it. The
label fit is all of `fala.release.fit_paper`, once, on soft shares.
"""

from __future__ import annotations

import os
from typing import Any

import click
import numpy as np
import scipy.linalg
from support.measuring import benchmark, in_turns, seconds_of
from threadpoolctl import threadpool_info, threadpool_limits

from fala.release import Evidence, fit_paper, probabilities


def time_solve(examples: int, dimension: int, repeats: int, seed: int) -> dict[str, Any]:
    """The path and its two peers."""
    random = np.random.default_rng(seed)
    features = random.standard_normal((examples, dimension))
    targets = random.standard_normal(examples)
    general = random.standard_normal((examples, examples))
    symmetric = features @ features.T + np.eye(examples)
    taken = in_turns(
        {
            "path": lambda: fit_paper(Evidence.of(features, logits=targets)),
            "general": lambda: scipy.linalg.solve(general, targets),
            "symmetric": lambda: scipy.linalg.solve(symmetric, targets),
        },
        repeats,
    )
    record: dict[str, Any] = {}
    for unit in ("clock", "processor"):
        middle = {name: float(np.median(getattr(one, unit))) for name, one in taken.items()}
        record[f"{unit}_milliseconds"] = {name: 1e3 * one for name, one in middle.items()}
        record[f"{unit}_ratio"] = middle["path"] / middle["general"]
        record[f"{unit}_ratio_to_symmetric"] = middle["path"] / middle["symmetric"]
    return record


def time_labels(examples: int, dimension: int, seed: int) -> dict[str, float]:
    """One fit of soft shares: five annotators' votes."""
    random = np.random.default_rng(seed)
    features = random.standard_normal((examples, dimension)) / np.sqrt(dimension)
    logits = features @ (3 + 6 * random.standard_normal((dimension, 1)))
    evidence = Evidence.of(features, labels=random.binomial(5, probabilities(logits)) / 5)
    clock, processor = seconds_of(lambda: fit_paper(evidence))
    return {"seconds": clock, "processor_seconds": processor}


@benchmark
@click.option("--examples", default=200, show_default=True, help="n.")
@click.option("--dimension", default=768, show_default=True, help="d.")
@click.option("--repeats", default=300, show_default=True, help="Turns.")
@click.option("--threads", type=int, help="BLAS threads; by default as many as BLAS takes.")
@click.option(
    "--labels", multiple=True, default=(1400, 8000), show_default=True, type=int,
    help="Examples of a label fit, in 384 dimensions; may be given again.",
)  # fmt: skip
def main(
    examples: int, dimension: int, repeats: int, threads: int | None, labels: tuple[int, ...],
    seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Run them and say what they took."""
    with threadpool_limits(threads, user_api="blas"):
        blas = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
        return {
            "cores": os.cpu_count(),
            "load_before": os.getloadavg()[0],
            "blas_threads": max((pool["num_threads"] for pool in blas), default=None),
            **time_solve(examples, dimension, repeats, seed),
            **{f"labels_{count}x384": time_labels(count, 384, seed) for count in labels},
        }


if __name__ == "__main__":
    main()
