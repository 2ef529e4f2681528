"""Threads that predict with one device while others change it.

    python benchmarks/threads.py
    python benchmarks/threads.py --seconds 20 --readers 4 --seed 1 --json

Eight threads predict and decide; four others learn, replace the backbone (over a bridge, back, and
without one), forget, and roll back or refine. Every prediction must come from one complete model:
the active one before and after it or, if that has changed, an earlier active one. At the end the
device must contain exactly the examples learned and not forgotten, and its folder must open with
the same predictions. Failures are printed, and the command fails.

A replacement that meets another one raises fala.DeviceChangedError: that is counted as no failure.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.measuring import benchmark

import fala
import fala_export
from fala.testing import labels_of, texts, write_releases

LEARNED, PROBES = texts()[:40], texts()[100:112]

#: Largest difference from a model's logits: sums are in another order.
TOLERANCE = 1e-4


class Run:
    """One device, and its threads' failures.

    Args:
        folder: The folder of the releases and the device.
        seed: The seed of the draws.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.releases = write_releases(folder)
        self.folder = folder / "device"
        self.device = fala.Device.create(self.folder, self.releases["glove"])
        self.device.learn(LEARNED, labels_of(LEARNED))
        self.seed = seed
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self.models: list[fala_export.PersonalModel] = []
        self.learned: dict[str, int] = {}
        self.forgotten: set[str] = set()
        self._embeddings = {}
        for name in ("glove", "bert"):
            backbone = fala.Bundle.open(self.releases[name]).backbone()
            vectors = backbone.encode(PROBES)
            self._embeddings[vectors.shape[1]] = dict(zip(PROBES, vectors, strict=True))

    def logits_of(self, model: fala_export.PersonalModel) -> np.ndarray[Any, Any]:
        """A model's logits for the probes."""
        embeddings = self._embeddings[model.weight.shape[1]]
        inputs = model.head.inputs(PROBES, embeddings)
        return np.asarray(model.logits(inputs, model.head.words(PROBES)))[:, 0]

    def model(self) -> fala_export.PersonalModel:
        """Record and return the active model."""
        model = self.device.model
        with self._lock:
            if not any(model is recent for recent in self.models[-50:]):
                self.models.append(model)
        return model

    def predict(self, _: random.Random) -> str:
        """One prediction, compared with its model."""
        before = self.model()
        probabilities = self.device.predict_proba(PROBES)[:, 1]
        after = self.model()
        logits = np.log(probabilities) - np.log1p(-probabilities)
        candidates = [before, after] if before is after else self.models[::-1]
        if not any(np.abs(self.logits_of(each) - logits).max() < TOLERANCE for each in candidates):
            raise AssertionError("a mixed prediction")
        return "predictions"

    def decide(self, _: random.Random) -> str:
        """One decision, compared with its model if that has not changed."""
        model = self.model()
        decided = self.device.predict(PROBES)
        if self.model() is model:
            margin = self.logits_of(model)
            positions = np.array([model.head.labels.index(label) for label in decided])
            if (positions != (margin > 0))[np.abs(margin) > TOLERANCE].any():
                raise AssertionError("a mixed decision")
        return "decisions"

    def read(self, draw: random.Random) -> str:
        """Predict or decide."""
        return draw.choice((self.predict, self.decide))(draw)

    def learn(self, draw: random.Random) -> str:
        """Learn a new text."""
        time.sleep(0.01)
        text = f"{draw.choice(texts())} Number {len(self.learned)}."
        self.device.learn([text], labels_of([text]))
        self.learned[text] = 1
        return "learned"

    def forget(self, draw: random.Random) -> str:
        """Forget some texts if there are many."""
        time.sleep(0.1)
        learned = [each for each in self.device.examples() if each.example in self.learned]
        if len(learned) < 12:
            return "too few to forget"
        chosen = draw.sample(learned, 6)
        self.device.forget(each.id for each in chosen)
        self.forgotten.update(str(each.example) for each in chosen)
        return "forgotten"

    def replace(self, draw: random.Random) -> str:
        """Install any release."""
        time.sleep(0.05)
        release = self.releases[draw.choice(sorted(self.releases))]
        self.device.replace(release, fala.Budget(draw.choice((0, 5, 20))))
        return "replaced"

    def turn(self, draw: random.Random) -> str:
        """Roll back, or refine."""
        time.sleep(0.1)
        if draw.random() < 0.5 and self.device.status().can_roll_back:
            self.device.rollback()
            return "rolled back"
        self.device.refine(fala.Budget(5))
        return "refined"

    def loop(self, number: int, act: Callable[[random.Random], str]) -> None:
        """Repeat an action until the end."""
        draw = random.Random(f"{self.seed} {number}")
        while not self.ended.is_set():
            try:
                done = act(draw)
            except fala.DeviceChangedError:
                done = "changed meanwhile"
            except Exception as error:
                self.wrong.append("".join(traceback.format_exception(error)[-9:]))
                done = "wrong"
            with self._lock:
                self.done[done] += 1

    def finish(self) -> None:
        """Check the examples, and open the folder again."""
        valid = {*LEARNED, *self.learned} - self.forgotten
        stored = {str(each.example) for each in self.device.examples()}
        if stored != valid:
            self.wrong.append(f"{len(valid - stored)} examples lost, {len(stored - valid)} extra")
        probabilities = self.device.predict_proba(PROBES)
        self.device.close()
        with fala.Device.open(self.folder) as device:
            if np.abs(device.predict_proba(PROBES) - probabilities).max() > TOLERANCE:
                self.wrong.append("other predictions after the folder was opened again")


@benchmark
@click.option("--seconds", type=click.FloatRange(0.1), default=300.0, show_default=True)
@click.option("--readers", type=click.IntRange(1), default=8, show_default=True)
def main(seconds: float, readers: int, seed: int) -> dict[str, Any]:
    """Run the threads, and count calls and failures."""
    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        run = Run(Path(temporary), seed)
        acts = [run.read] * readers + [run.learn, run.forget, run.replace, run.turn]
        threads = [
            threading.Thread(target=run.loop, args=(number, act)) for number, act in enumerate(acts)
        ]
        for thread in threads:
            thread.start()
        try:
            time.sleep(seconds)
        finally:
            run.ended.set()
            for thread in threads:
                thread.join()
        run.finish()
    return {
        "models": len(run.models),
        "done": dict(sorted(run.done.items())),
        "answers": run.done["predictions"] + run.done["decisions"],
        "wrong": len(run.wrong),
        "what": run.wrong[:20],
    }


if __name__ == "__main__":
    main()
