"""Processor time of a device's fits, with and without a BLAS under NumPy.

    python -m venv bare && bare/bin/pip install --no-binary numpy numpy==VERSION \
        -Csetup-args=-Dblas=none -Csetup-args=-Dlapack=none -Csetup-args=-Dallow-noblas=true
    bare/bin/pip install -e .
    python benchmarks/no_blas.py --peer bare/bin/python
    python benchmarks/no_blas.py --peer bare/bin/python --words --json

NumPy for phones is built without a BLAS. No model runs here: the embeddings are random numbers,
before and after the replacement, with a bridge between them. With --words both releases read
n-grams, too. Seconds are processor time in one thread: of learning all labels but one at once, of
the last label, of a prediction, of a replacement over the bridge with no pass and with --passes, of
a refinement by as many, and of forgetting the oldest example afterwards, with both models fitted
again. Each is the median over --repeats; the ratio is to this interpreter, whose processes take
turns with the peer's.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.documents import random_texts, rows_of
from support.measuring import benchmark, median_ratio, timed

import fala
import fala_export
from fala.backbones.external import ExternalEncoder

_PUBLIC = 1600
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def write_releases(folder: Path, dimension: int, count: int, words: bool, seed: int) -> None:
    """Texts and labels, embeddings by two encoders, and a release for each."""
    random = np.random.default_rng(seed)
    drawn = random_texts(_PUBLIC + count, seed)
    texts = [f"t{row} {text}" for row, text in enumerate(drawn)]  # no two are alike
    old = random.standard_normal((len(texts), dimension)).astype(np.float32) / 8
    turn = random.standard_normal((dimension, dimension)).astype(np.float32) / dimension**0.5
    labels = (old @ random.standard_normal(dimension) > 0).astype(int).tolist()
    public = slice(_PUBLIC)
    vectors = {"old": old, "new": np.tanh(8 * old @ turn)}
    for name, every in vectors.items():
        np.save(folder / f"{name}.npy", every)
        embeddings = dict(zip(texts, every, strict=True))
        backbone = ExternalEncoder(f"{name} 1", dimension, None)
        head = fala_export.fit_head(
            backbone, texts[public], labels[public], embeddings=embeddings, lexical=words
        )
        probes = {text: embeddings[text] for text in texts[:8]}
        fala_export.write_external(folder / f"{name}.fala", name, "1", head, probes)
    source = fala.Bundle.open(folder / "old.fala").backbone_digest
    bridge = fala_export.fit_bridge(source, vectors["old"][public], vectors["new"][public])
    release = folder / "new.fala"
    fala_export.add_bridge(release, fala.Bundle.open(release), bridge, {})
    (folder / "rows.json").write_text(json.dumps([texts, labels]))


def measure(folder: str, labels: int, passes: int) -> None:
    """Print the seconds of each operation of one device, as JSON."""
    releases = Path(folder)
    texts, answers = json.loads((releases / "rows.json").read_text())
    encoders = {
        f"{name} 1": partial(
            rows_of, dict(zip(texts, np.load(releases / f"{name}.npy"), strict=True))
        )
        for name in ("old", "new")
    }
    rows = list(zip(texts, answers, strict=True))[_PUBLIC:]
    seconds: dict[str, float] = {}

    def measured(name: str, call: Callable[..., object], *arguments: object) -> None:
        seconds[name] = timed(call, *arguments).processor

    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        path, copy = Path(temporary, "device"), Path(temporary, "copy")
        with fala.Device.create(path, releases / "old.fala", encoder=encoders) as device:
            most = [list(column) for column in zip(*rows[: labels - 1], strict=True)]
            measured("learn", device.learn, *most)
            text, label = rows[labels - 1]
            measured("one_more_label", device.learn, [text], [label])
            device.predict([rows[-2][0]])
            measured("predict", device.predict, [rows[-1][0]])
        shutil.copytree(path, copy)
        new = releases / "new.fala"
        with fala.Device.open(copy, encoder=encoders) as device:
            measured(f"replace_{passes}", device.replace, new, fala.Budget(passes))
        with fala.Device.open(path, encoder=encoders) as device:
            measured("replace_0", device.replace, new, fala.Budget(0))
            measured(f"refine_{passes}", device.refine, fala.Budget(passes))
            oldest = next(iter(device.examples())).id
            measured("forget", device.forget, [oldest])
    click.echo(json.dumps(seconds))


def measured_by(python: str, *arguments: object) -> dict[str, float]:
    """The figures of ``measure`` by an interpreter."""
    code = f"import no_blas; no_blas.measure(*{arguments!r})"
    done = subprocess.run(
        [python, "-c", code], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), **_ONE_THREAD},
    )  # fmt: skip
    if done.returncode:
        raise click.ClickException(f"{python} failed:\n{done.stderr}")
    return dict(json.loads(done.stdout))


def blas_of(python: str) -> str:
    """The BLAS of an interpreter's NumPy."""
    code = "import numpy; print(numpy.show_config('dicts')['Build Dependencies']['blas']['name'])"
    return subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


@benchmark
@click.option("--peer", help="Another interpreter, with FaLA and a NumPy without a BLAS.")
@click.option(
    "--labels", "numbers", multiple=True, type=click.IntRange(20), default=(50, 500, 2000),
    show_default=True, help="Numbers of labels; again for more.",
)  # fmt: skip
@click.option(
    "--dimension", "dimensions", multiple=True, type=click.IntRange(2), default=(384, 1152),
    show_default=True, help="Dimensions of both encoders; again for more.",
)  # fmt: skip
@click.option("--passes", type=click.IntRange(1), default=20, show_default=True)
@click.option("--words", is_flag=True, help="Let both releases read n-grams.")
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True)
def main(
    peer: str | None, numbers: tuple[int, ...], dimensions: tuple[int, ...], passes: int,
    words: bool, repeats: int, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Measure each dimension and number of labels by both interpreters."""
    pythons = {"seconds": sys.executable, **({"peer_seconds": peer} if peer else {})}
    record: dict[str, Any] = {"labels": max(numbers)}
    record |= {f"{name}_blas": blas_of(python) for name, python in pythons.items()}
    for dimension in dimensions:
        with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
            write_releases(Path(temporary), dimension, max(numbers) + 2, words, seed)
            for labels in numbers:
                turns = [
                    {name: measured_by(python, temporary, labels, passes)
                     for name, python in pythons.items()}
                    for _ in range(repeats)
                ]  # fmt: skip
                record[f"{dimension} numbers, {labels} labels"] = _table(turns)
    return record


def _table(turns: list[dict[str, dict[str, float]]]) -> dict[str, str]:
    """The medians of each operation, and of the peer's ratio within a turn."""
    rows: dict[str, Any] = {}
    for name in turns[0]["seconds"]:
        own = [turn["seconds"][name] for turn in turns]
        rows[name] = {"seconds": statistics.median(own)}
        if "peer_seconds" in turns[0]:
            peer = [turn["peer_seconds"][name] for turn in turns]
            rows[name]["peer_seconds"] = statistics.median(peer)
            rows[name]["ratio"] = median_ratio(peer, own)
    return rows


if __name__ == "__main__":
    main()
