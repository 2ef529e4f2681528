"""Costs of a device with very many examples, compared with one with a tenth of them.

    python benchmarks/scale.py
    python benchmarks/scale.py --examples 20000 --words --json
    python benchmarks/scale.py --one-at-a-time

Two real devices in a temporary folder, one with ten times as many examples as the other, use random
word vectors; the user's labels follow a random direction. Measured are opening, a prediction (and
one of a device without examples), one more label (and a fit of all), and a replacement by the
built-in transformer without a bridge. Figures are processor time of all threads, except for
predictions: the 99th percentile on the clock. Each step has a process of its own, whose peak memory
is reported. ``growth`` is the time of a replacement divided by ten times that of a tenth of the
examples: 1 is linear. With --words both releases read n-grams, too.

With --one-at-a-time a device learns the examples one by one instead: the processor time of a
thousand, its full fits and slowest label, for each tenth; and the growth of the memory over cycles
of a prediction and a changed label.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.documents import WORDS, bundle_of, random_texts, write_release, write_word_vectors
from support.measuring import benchmark, figures_apart, peak_megabytes, timed

import fala
from fala.testing import run_apart

_PREDICTIONS = 300
_FURTHER = 20
# A device of so many examples has cycles of a prediction and a label.
_FEW, _CYCLES = 300, 5_000


def write_releases(folder: Path, dimension: int, words: bool, seed: int) -> None:
    """Word vectors drawn at random, and the built-in transformer, with heads of the same labels."""
    random = np.random.default_rng(seed)
    names = [f"w{number}" for number in range(WORDS)]
    vectors = random.standard_normal((WORDS, dimension))
    bundles = {
        "old": write_word_vectors(folder / "vectors.fala", "random", names, vectors),
        "new": bundle_of("bert"),
    }
    public, labels = random_texts(400, seed + 1), random.integers(2, size=400).tolist()
    for name, bundle in bundles.items():
        write_release(folder / f"{name}.fala", bundle, public, labels, words)


def labelled(bundle: fala.Bundle, examples: int, seed: int) -> tuple[list[str], list[str]]:
    """Texts, and labels that follow a random direction."""
    texts = random_texts(examples, seed + 2)
    direction = np.random.default_rng(seed).standard_normal(bundle.manifest.dimension)
    return texts, [str(int(value > 0)) for value in bundle.backbone().encode(texts) @ direction]


def fill(folder: Path, examples: int, seed: int) -> dict[str, float]:
    """Make a device, and learn all examples at once."""
    bundle = fala.Bundle.open(folder / "old.fala")
    with fala.Device.create(folder / f"device{examples}", bundle.path) as device:
        if not examples:
            return {}
        texts, labels = labelled(bundle, examples, seed)
        return {"learn_seconds": timed(device.learn, texts, labels).processor}


def one_by_one(folder: Path, examples: int, seed: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Learn examples one by one; yields the figures of each tenth, by the examples so far."""
    bundle = fala.Bundle.open(folder / "old.fala")
    pairs = list(zip(*labelled(bundle, examples, seed), strict=True))
    with fala.Device.create(folder / "one-by-one", bundle.path) as device:
        for tenth in np.array_split(np.arange(examples), 10):
            calls = [timed(device.learn, [pairs[at][0]], [pairs[at][1]]) for at in tenth]
            seconds = [call.processor for call in calls]
            yield str(tenth[-1] + 1), {
                "seconds_per_thousand": 1000 * float(np.mean(seconds)),
                "full_fits": sum(call.result.exact for call in calls),
                "slowest_label": max(seconds), "peak_megabytes": peak_megabytes(),
            }  # fmt: skip


def cycles(folder: Path, examples: int, seed: int) -> dict[str, float]:
    """Predict and change a label, again and again."""
    bundle = fala.Bundle.open(folder / "old.fala")
    texts, labels = labelled(bundle, _FEW, seed)
    memory = list[float]()
    with fala.Device.create(folder / "cycles", bundle.path) as device:
        device.learn(texts, labels)
        for cycle in range(examples):
            device.predict_proba([texts[(cycle + 1) % _FEW]])
            device.learn([texts[cycle % _FEW]], [str(cycle // _FEW % 2)])
            if cycle in (examples // 5, examples - 1):
                memory.append(peak_megabytes())
    return {"cycles": examples, "first_megabytes": memory[0], "last_megabytes": memory[-1]}


def predict(folder: Path, examples: int, seed: int) -> dict[str, float]:
    """Open a device, and predict."""
    path = folder / f"device{examples}"
    fala.Device.open(path).close()
    opened = timed(fala.Device.open, path)
    with opened.result as device:
        texts = random_texts(_PREDICTIONS, seed + 3)
        clock = [timed(device.predict_proba, [text]).clock for text in texts]
    return {"open_seconds": opened.processor, "predict_p99": float(np.quantile(clock[1:], 0.99))}


def learn_more(folder: Path, examples: int, seed: int) -> dict[str, float]:
    """Open a device, learn labels one by one, and fit all of them."""
    with fala.Device.open(folder / f"device{examples}") as device:
        seconds = [
            timed(device.learn, [text], [str(number % 2)]).processor
            for number, text in enumerate(random_texts(_FURTHER, seed + 4))
        ]
        fit = timed(device.fit).processor
    one_more = float(np.median(seconds[1:]))
    return {
        "first_label_seconds": seconds[0], "one_more_seconds": one_more, "fit_seconds": fit,
        "one_more_by_fit": one_more / fit,
    }  # fmt: skip


def replace(folder: Path, examples: int, seed: int) -> dict[str, float]:
    """Replace the word vectors by the transformer, without a bridge."""
    with fala.Device.open(folder / f"device{examples}") as device:
        report, _, seconds = timed(device.replace, folder / "new.fala")
    return {"replace_seconds": seconds, "forward_passes": report.forward_passes, **report.seconds}


STEPS = {
    "fill": fill, "predict": predict, "further": learn_more, "replace": replace, "cycles": cycles,
}  # fmt: skip


def in_a_process(folder: Path, step: str, examples: int, seed: int) -> dict[str, float]:
    """A step's figures, with its peak memory."""

    def figures() -> dict[str, float]:
        return {**STEPS[step](folder, examples, seed), f"{step}_megabytes": peak_megabytes()}

    return figures_apart(f"{examples:,} examples: {step}", figures)


@benchmark
@click.option("--examples", default=100_000, show_default=True, help="Labelled texts.")
@click.option("--dimension", default=384, show_default=True, help="Of the word vectors.")
@click.option("--words", is_flag=True, help="Let both releases read n-grams.")
@click.option("--one-at-a-time", is_flag=True, help="Learn the examples one by one.")
def main(
    examples: int, dimension: int, words: bool, one_at_a_time: bool, seed: int
) -> dict[str, Any]:
    """Measure all steps, with many examples and with a tenth."""
    record: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        folder = Path(temporary)
        run_apart(lambda _: write_releases(folder, dimension, words, seed), limit=600)
        if one_at_a_time:
            record["memory"] = in_a_process(folder, "cycles", min(examples, _CYCLES), seed)
            for count, figures in one_by_one(folder, examples, seed):
                click.echo(f"{int(count):,} examples: {figures}", err=True)
                record[count] = figures
            return record
        in_a_process(folder, "fill", 0, seed)
        record["empty"] = in_a_process(folder, "predict", 0, seed)
        for count in (examples // 10, examples):
            record[str(count)] = {}
            for step in ("fill", "predict", "further", "replace"):
                record[str(count)] |= in_a_process(folder, step, count, seed)
    few, many = record[str(examples // 10)], record[str(examples)]
    record["growth"] = many["replace_seconds"] / (10 * few["replace_seconds"])
    record["ratio"] = many["predict_p99"] / record["empty"]["predict_p99"]
    return record


if __name__ == "__main__":
    main()
