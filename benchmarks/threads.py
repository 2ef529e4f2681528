"""Threads that ask one device while others change it.

    python benchmarks/threads.py
    python benchmarks/threads.py --seconds 20 --readers 4 --seed 1 --json

Eight threads predict and decide; four others learn, replace the backbone (over a bridge, back, and
without one), forget, and roll back or refine. Every answer must be one model's, whole: that of the
model which the device named before and after it, or, where it was changed meanwhile, of one that
the device has had. In the end the device must keep exactly what was learned and not forgotten, and
its folder must open with the same answers. What is wrong is printed, and the command fails.

A replacement that finds that another was installed meanwhile says so (fala.DeviceChangedError):
that is counted, and no error.
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
from fala.testing import labels_of, texts, write_releases

LEARNED, PROBES = texts()[:40], texts()[100:112]

#: How far an answer may be from its model's: sums in another order.
TOLERANCE = 1e-4


class Run:
    """One device, and what threads found of it.

    Args:
        folder: Where releases and device go.
        seed: Of what is drawn.
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
        self.models: list[fala.PersonalModel] = []
        self.learned: dict[str, int] = {}
        self.forgotten: set[str] = set()
        self._embeddings = {}
        for name in ("glove", "bert"):
            backbone = fala.Bundle.open(self.releases[name]).backbone()
            vectors = backbone.encode(PROBES)
            self._embeddings[vectors.shape[1]] = dict(zip(PROBES, vectors, strict=True))

    def logits_of(self, model: fala.PersonalModel) -> np.ndarray[Any, Any]:
        """A model's logits of the probes."""
        embeddings = self._embeddings[model.weight.shape[1]]
        inputs = model.head.inputs(PROBES, embeddings)
        return np.asarray(model.logits(inputs, model.head.words(PROBES)))[:, 0]

    def model(self) -> fala.PersonalModel:
        """The active model; it is noted."""
        model = self.device.model
        with self._lock:
            if not any(model is one for one in self.models[-50:]):
                self.models.append(model)
        return model

    def predict(self, _: random.Random) -> str:
        """One prediction, held to its model."""
        before = self.model()
        answers = self.device.predict(PROBES)[:, 1]
        after = self.model()
        logits = np.log(answers) - np.log1p(-answers)
        candidates = [before, after] if before is after else self.models[::-1]
        if not any(np.abs(self.logits_of(one) - logits).max() < TOLERANCE for one in candidates):
            raise AssertionError("a mixed answer")
        return "predictions"

    def decide(self, _: random.Random) -> str:
        """One decision, held to its model where that was the same before and after."""
        model, threshold = self.model(), self.device.threshold
        decided = self.device.decide(PROBES)
        if self.model() is model and self.device.threshold == threshold:
            margin = self.logits_of(model) - threshold
            positions = np.array([model.head.labels.index(label) for label in decided])
            if (positions != (margin > 0))[np.abs(margin) > TOLERANCE].any():
                raise AssertionError("a mixed decision")
        return "decisions"

    def ask(self, draw: random.Random) -> str:
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
        """Forget some texts where there are many."""
        time.sleep(0.1)
        here = [each for each in self.device.examples() if each.example in self.learned]
        if len(here) < 12:
            return "too few to forget"
        chosen = draw.sample(here, 6)
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
        if draw.random() < 0.5 and self.device.can_roll_back:
            self.device.rollback()
            return "rolled back"
        self.device.refine(fala.Budget(5))
        return "refined"

    def loop(self, number: int, act: Callable[[random.Random], str]) -> None:
        """Do one thing again and again, until the end."""
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
        """Look at what is kept, and open the folder again."""
        wanted = {*LEARNED, *self.learned} - self.forgotten
        kept = {str(each.example) for each in self.device.examples()}
        if kept != wanted:
            self.wrong.append(f"{len(wanted - kept)} examples lost, {len(kept - wanted)} too many")
        answers = self.device.predict(PROBES)
        self.device.close()
        with fala.Device.open(self.folder) as device:
            if np.abs(device.predict(PROBES) - answers).max() > TOLERANCE:
                self.wrong.append("other answers when it was opened again")


@benchmark
@click.option("--seconds", type=click.FloatRange(0.1), default=300.0, show_default=True)
@click.option("--readers", type=click.IntRange(1), default=8, show_default=True)
def main(seconds: float, readers: int, seed: int) -> dict[str, Any]:
    """Run them, and count what was done and found."""
    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        run = Run(Path(temporary), seed)
        acts = [run.ask] * readers + [run.learn, run.forget, run.replace, run.turn]
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
