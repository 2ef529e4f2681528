"""What a device with very many examples costs, beside one with a tenth of them.

    python benchmarks/scale.py
    python benchmarks/scale.py --examples 20000 --words --json

Two real devices in a temporary folder, of ten times as many examples one as the other, on word
vectors that are drawn at random; their user's labels follow a direction of their own. Measured are
opening, a prediction beside one of a device without examples, one more label, and a replacement by
the built-in transformer without a bridge: processor time of all threads, but for predictions, whose
99th percentile on the clock is compared. Each is in a process of its own, whose peak of memory is
told. ``growth`` is the time a replacement takes by ten times that of a tenth of the examples: 1 is
linear. With --words both releases read n-grams, too.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.measuring import report

import fala
from fala.playground.releases import built_in
from fala.release import VECTORS, VOCABULARY, WORD_VECTORS, array_bytes

_WORDS = 5_000
_LENGTH = 12
_PREDICTIONS = 300
_FURTHER = 20


def write_releases(folder: Path, dimension: int, words: bool, seed: int) -> None:
    """Word vectors drawn at random, and the built-in transformer, with heads of the same labels."""
    random = np.random.default_rng(seed)
    vocabulary = ["<unk>", *(f"w{number}" for number in range(_WORDS))]
    vectors = random.standard_normal((len(vocabulary), dimension)).astype(np.float16)
    files = {VOCABULARY: ("\n".join(vocabulary) + "\n").encode(), VECTORS: array_bytes(vectors)}
    plain = folder / "vectors.fala"
    fala.write_bundle(
        plain, fala.Manifest("random", WORD_VECTORS, dimension, "float16"), files, None
    )
    public = texts_of(400, seed + 1)
    for name, opened in (("old", fala.Bundle.open(plain)), ("new", built_in("bert"))):
        head = fala.fit_head(
            opened.backbone(), public, random.integers(2, size=len(public)).tolist(), lexical=words
        )
        fala.write_release(folder / f"{name}.fala", opened, head, {})


def texts_of(count: int, seed: int) -> list[str]:
    """Texts of words drawn at random, the first words the most often."""
    random = np.random.default_rng(seed)
    drawn = (_WORDS * random.random((count, _LENGTH)) ** 3).astype(int)
    return [" ".join(f"w{word}" for word in row) for row in drawn]


def fill(folder: Path, examples: int, seed: int) -> dict[str, float]:
    """Make a device, and let it learn all examples at once."""
    bundle = fala.Bundle.open(folder / "old.fala")
    with fala.Device.create(folder / f"device{examples}", bundle.path) as device:
        if not examples:
            return {}
        texts = texts_of(examples, seed + 2)
        z = bundle.backbone().encode(texts) @ np.random.default_rng(seed).standard_normal(
            bundle.manifest.dimension
        )
        start = time.process_time()
        device.learn(texts, [str(int(value > 0)) for value in z])
        return {"learn_seconds": time.process_time() - start}


def predict(folder: Path, examples: int, seed: int) -> dict[str, float]:
    """Open a device, and let it answer."""
    fala.Device.open(folder / f"device{examples}").close()
    start = time.process_time()
    device = fala.Device.open(folder / f"device{examples}")
    opened = time.process_time() - start
    taken: list[float] = []
    with device:
        for text in texts_of(_PREDICTIONS, seed + 3):
            start = time.perf_counter()
            device.predict([text])
            taken.append(time.perf_counter() - start)
    return {"open_seconds": opened, "predict_p99": float(np.quantile(taken[1:], 0.99))}


def further(folder: Path, examples: int, seed: int) -> dict[str, float]:
    """Open a device, and learn one label after the other."""
    taken: list[float] = []
    with fala.Device.open(folder / f"device{examples}") as device:
        for number, text in enumerate(texts_of(_FURTHER, seed + 4)):
            start = time.process_time()
            device.learn([text], [str(number % 2)])
            taken.append(time.process_time() - start)
    return {"first_label_seconds": taken[0], "one_more_seconds": float(np.median(taken[1:]))}


def replace(folder: Path, examples: int, seed: int) -> dict[str, float]:
    """Replace the word vectors by the transformer, without a bridge."""
    with fala.Device.open(folder / f"device{examples}") as device:
        start = time.process_time()
        report = device.replace(folder / "new.fala")
        taken = time.process_time() - start
    return {"replace_seconds": taken, "forward_passes": report.forward_passes, **report.seconds}


STEPS = {"fill": fill, "predict": predict, "further": further, "replace": replace}


def in_a_process(folder: Path, step: str, examples: int, seed: int) -> dict[str, float]:
    """A step's figures, with its peak of memory."""
    command = [sys.executable, __file__, "--step", step, "--folder", str(folder)]
    command += ["--examples", str(examples), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(done.stderr)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def measure(examples: int, dimension: int, words: bool, seed: int) -> dict[str, Any]:
    """All steps, of many examples and of a tenth."""
    record: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        folder = Path(temporary)
        write_releases(folder, dimension, words, seed)
        in_a_process(folder, "fill", 0, seed)
        record["empty"] = in_a_process(folder, "predict", 0, seed)
        for count in (examples // 10, examples):
            figures = record[str(count)] = {}
            for step in STEPS:
                print(f"{count:,} examples: {step}", file=sys.stderr, flush=True)
                found = in_a_process(folder, step, count, seed)
                figures[f"{step}_megabytes"] = found.pop("megabytes")
                figures |= found
    few, many = record[str(examples // 10)], record[str(examples)]
    record["growth"] = many["replace_seconds"] / (10 * few["replace_seconds"])
    record["ratio"] = many["predict_p99"] / record["empty"]["predict_p99"]
    return record


@click.command(help=__doc__)
@click.option("--examples", default=100_000, show_default=True, help="Labelled texts.")
@click.option("--dimension", default=384, show_default=True, help="Of the word vectors.")
@click.option("--words", is_flag=True, help="Let both releases read n-grams.")
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--step", type=click.Choice(list(STEPS)), hidden=True)
@click.option("--folder", type=click.Path(path_type=Path), hidden=True)
def main(
    examples: int, dimension: int, words: bool, seed: int, as_json: bool,
    step: str | None, folder: Path | None,
) -> None:  # fmt: skip
    """Measure what many examples cost."""
    if step is not None and folder is not None:
        figures = STEPS[step](folder, examples, seed)
        figures["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        click.echo(json.dumps(figures))
        return
    record = measure(examples, dimension, words, seed)
    report(record, as_json=as_json)


if __name__ == "__main__":
    main()
