"""Threads that predict with one device while others change it.

    python benchmarks/threads.py
    python benchmarks/threads.py --seconds 20 --readers 4 --seed 1 --json

Eight threads predict and decide; four others call an app's methods at random: learn, remember,
replace the backbone (over a bridge, back, and without one), refine, roll back, confirm and forget.
Every prediction must come from one complete model: the active one before and after it or, if that
has changed, an earlier active one. At the end the device must contain exactly the examples that
were kept, and its folder must open with the same predictions. Failures are printed, and the command
fails.

A replacement that meets another one raises fala.DeviceChangedError: that is counted as no failure.
"""

from __future__ import annotations

import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.calls import Calls, Note, call_at_random
from support.measuring import benchmark

import fala
import fala_export
from fala.testing import labels_of, texts, write_releases

LEARNED, PROBES = texts()[:40], texts()[100:112]
WRITERS = 4
#: Largest difference from a model's logits: sums are in another order.
TOLERANCE = 1e-4


class Readers:
    """Threads that compare predictions with the models of a device.

    Args:
        device: The device.
        releases: Releases of the backbones that it may have.
    """

    def __init__(self, device: fala.Device, releases: list[Path]) -> None:
        self.device = device
        self.models: list[fala_export.PersonalModel] = []
        self._lock = threading.Lock()
        self._embeddings = {}
        for release in releases:
            vectors = fala.Bundle.open(release).backbone().encode(PROBES)
            self._embeddings[vectors.shape[1]] = dict(zip(PROBES, vectors, strict=True))

    def logits_of(self, model: fala_export.PersonalModel) -> np.ndarray[Any, Any]:
        """A model's logits for the probes."""
        embeddings = self._embeddings[model.weight.shape[1]]
        inputs = model.head.inputs(PROBES, embeddings)
        return np.asarray(model.logits(inputs, model.head.ngrams(PROBES)))[:, 0]

    def model(self) -> fala_export.PersonalModel:
        """Record and return the active model."""
        model = self.device.model
        with self._lock:
            if not any(model is recent for recent in self.models[-50:]):
                self.models.append(model)
        return model

    def predictions(self) -> None:
        """One prediction, compared with its model."""
        before = self.model()
        probabilities = self.device.predict_proba(PROBES)[:, 1]
        after = self.model()
        logits = np.log(probabilities) - np.log1p(-probabilities)
        candidates = [before, after] if before is after else self.models[::-1]
        if not any(np.abs(self.logits_of(each) - logits).max() < TOLERANCE for each in candidates):
            raise AssertionError("a mixed prediction")

    def decisions(self) -> None:
        """One decision, compared with its model if that has not changed."""
        model = self.model()
        decided = self.device.predict(PROBES)
        if self.model() is model:
            margin = self.logits_of(model)
            positions = np.array([model.head.labels.index(label) for label in decided])
            if (positions != (margin > 0))[np.abs(margin) > TOLERANCE].any():
                raise AssertionError("a mixed decision")

    def read(self, until: float) -> list[Note]:
        """Predict and decide in turn; returns notes."""
        notes, acts = list[Note](), cycle((self.predictions, self.decisions))
        while time.time() < until:
            act = next(acts)
            try:
                act()
                notes.append(("done", act.__name__, 0.0))
            except Exception:
                notes.append(("failed", traceback.format_exc(), 0.0))
        return notes


def check(device: fala.Device, folder: Path, calls: Calls) -> None:
    """Compare the examples with those that were kept, and open the folder again."""
    kept, stored = {*LEARNED} | calls.kept, {str(each.example) for each in device.examples()}
    if stored != kept:
        calls.wrong.append(f"{len(kept - stored)} examples lost, {len(stored - kept)} extra")
    probabilities = device.predict_proba(PROBES)
    device.close()
    with fala.Device.open(folder) as again:
        if np.abs(again.predict_proba(PROBES) - probabilities).max() > TOLERANCE:
            calls.wrong.append("other predictions after the folder was opened again")


@benchmark
@click.option("--seconds", type=click.FloatRange(0.1), default=300.0, show_default=True)
@click.option("--readers", type=click.IntRange(1), default=8, show_default=True)
def main(seconds: float, readers: int, seed: int) -> dict[str, Any]:
    """Run the threads, and count calls and failures."""
    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        folder, releases = Path(temporary, "device"), write_releases(temporary)
        device = fala.Device.create(folder, releases["glove"])
        device.learn(LEARNED, labels_of(LEARNED))
        reading = Readers(device, [releases["glove"], releases["bert"]])
        calls, until, paths = Calls(), time.time() + seconds, list(releases.values())
        with ThreadPoolExecutor(readers + WRITERS) as pool:
            running = [pool.submit(reading.read, until) for _ in range(readers)]
            for number in range(WRITERS):
                caller = WRITERS * seed + number
                calling = call_at_random(device, paths, "", until, caller)
                running.append(pool.submit(list, calling))
        for each in running:
            calls.add(each.result())
        check(device, folder, calls)
    return {
        "models": len(reading.models),
        "done": dict(sorted(calls.counts.items())),
        "answers": calls.counts["predictions"] + calls.counts["decisions"],
        "wrong": len(calls.wrong),
        "what": calls.wrong[:20],
    }


if __name__ == "__main__":
    main()
