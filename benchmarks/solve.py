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
import statistics
import time
from collections.abc import Callable

import click
import numpy as np
import scipy.linalg
from support.measuring import report
from threadpoolctl import threadpool_info, threadpool_limits

from fala.release import Evidence, fit_paper, probabilities


def interleaved(
    calls: dict[str, Callable[[], object]], repeats: int
) -> dict[str, list[tuple[float, float]]]:
    """Seconds by the clock and of the processor, of calls in turn, ``repeats`` times."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            processor, clock = time.process_time(), time.perf_counter()
            call()
            clock = time.perf_counter() - clock
            seconds[name].append((clock, time.process_time() - processor))
    return seconds


def time_solve(examples: int, dimension: int, repeats: int, seed: int) -> dict[str, float | int]:
    """The path and its two peers."""
    random = np.random.default_rng(seed)
    features = random.standard_normal((examples, dimension))
    targets = random.standard_normal(examples)
    general = random.standard_normal((examples, examples))
    symmetric = features @ features.T + np.eye(examples)
    seconds = interleaved(
        {
            "path": lambda: fit_paper(Evidence.of(features, logits=targets)),
            "general": lambda: scipy.linalg.solve(general, targets),
            "symmetric": lambda: scipy.linalg.solve(symmetric, targets),
        },
        repeats,
    )
    record: dict[str, float | int] = {
        "examples": examples,
        "dimension": dimension,
    }
    for index, unit in enumerate(("clock", "processor")):
        middle = {}
        for name, pairs in seconds.items():
            middle[name] = statistics.median(pair[index] for pair in pairs)
            record[f"{name}_{unit}_milliseconds"] = round(middle[name] * 1e3, 3)
        record[f"{unit}_ratio"] = round(middle["path"] / middle["general"], 2)
        record[f"{unit}_ratio_to_symmetric"] = round(middle["path"] / middle["symmetric"], 2)
    return record


def time_labels(examples: int, dimension: int, seed: int) -> dict[str, float]:
    """One fit of soft shares: five annotators' votes."""
    random = np.random.default_rng(seed)
    features = random.standard_normal((examples, dimension)) / np.sqrt(dimension)
    logits = features @ (3 + 6 * random.standard_normal((dimension, 1)))
    evidence = Evidence.of(features, labels=random.binomial(5, probabilities(logits)) / 5)
    start = time.perf_counter(), time.process_time()
    fit_paper(evidence)
    return {
        f"labels_{examples}x{dimension}_seconds": round(time.perf_counter() - start[0], 2),
        f"labels_{examples}x{dimension}_processor_seconds": round(
            time.process_time() - start[1], 2
        ),
    }


@click.command(help=__doc__)
@click.option("--examples", default=200, show_default=True, help="n.")
@click.option("--dimension", default=768, show_default=True, help="d.")
@click.option("--repeats", default=300, show_default=True, help="Turns.")
@click.option("--threads", type=int, help="BLAS threads; by default as many as BLAS takes.")
@click.option(
    "--labels",
    multiple=True,
    default=(1400, 8000),
    show_default=True,
    type=int,
    help="Examples of a label fit, in 384 dimensions; may be given again.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the data.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(
    examples: int,
    dimension: int,
    repeats: int,
    threads: int | None,
    labels: tuple[int, ...],
    seed: int,
    as_json: bool,
) -> None:
    """Run them and print what they took."""
    with threadpool_limits(threads, user_api="blas"):
        blas = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
        record: dict[str, object] = {
            "cores": os.cpu_count(),
            "load_before": round(os.getloadavg()[0], 1),
            "blas_threads": max((pool["num_threads"] for pool in blas), default=None),
            **time_solve(examples, dimension, repeats, seed),
        }
        for count in labels:
            record |= time_labels(count, 384, seed)
    report(record, as_json=as_json)


if __name__ == "__main__":
    main()
