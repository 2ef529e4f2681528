"""How often ``accept="better-than-old"`` refuses good and harmful releases, of made-up people.

    python benchmarks/accepting.py
    python benchmarks/accepting.py --people 400 --seed 1 --json

A text is a point of a space that two encoders see with noise. A vendor fits a head for each to few
or many public labels, three times as many for the new one, so that heads of any AUC occur. A person
agrees with the public a little or a lot, and has 20, 60 or 300 labels of two or three kinds. Three
of four releases have a bridge. In turn the new head is the vendor's, is turned (every label is
taken for another), or is of another task. A device replaces the old release on 20 forward passes,
and is scored on 1,000 texts that it never had. A release is good if their cross-entropy does not
rise, and harmful if it rises by more than .02 nats. The rates are by the old head's AUC for the
person.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from support.documents import rows_of
from support.measuring import benchmark

import fala
from fala.base.products import Floats
from fala.model.heads import Head
from fala_export import add_bridge, fit_bridge, fit_head, write_external
from fala_sim.methods.quality import label_figures

KINDS = ("vendor's", "vendor's", "turned", "of another task")
BANDS = (0.5, 0.6, 0.7, 0.8, 1.0)
PASSES, HELD_OUT, PUBLIC = 20, 1000, 2000
#: Share of the releases that have a bridge.
BRIDGED = 0.75
_DIMENSIONS = {"old": 40, "new": 64}
_LATENT = 24


@dataclass
class World:
    """Texts, two encoders, and the tastes of the public and of a person.

    Attributes:
        random: The source of all draws.
        logits: The number of logits of a head.
    """

    random: np.random.Generator
    logits: int

    def __post_init__(self) -> None:
        self._spectrum = 1 / np.sqrt(1 + np.arange(_LATENT))
        self._maps = {
            name: self.random.normal(size=(_LATENT, size)) / np.sqrt(_LATENT)
            for name, size in _DIMENSIONS.items()
        }

    def texts(self, count: int) -> Floats:
        """Points of the space, (n, d)."""
        return self.random.normal(size=(count, _LATENT)) * self._spectrum

    def embeddings(self, points: Floats) -> dict[str, NDArray[np.float32]]:
        """Both encoders' embeddings of texts, by encoder."""
        return {
            name: (points @ matrix + 0.03 * self.random.normal(size=(len(points), size))).astype(
                np.float32
            )
            for (name, matrix), size in zip(
                self._maps.items(), _DIMENSIONS.values(), strict=True
            )
        }  # fmt: skip

    def taste(self, other: Floats | None = None, share: float = 0.0) -> Floats:
        """A direction of the space for each logit, with a share of another one."""
        own = self._unit(self.random.normal(size=(_LATENT, self.logits)))
        if other is None:
            return own
        return self._unit(share * other + np.sqrt(1 - share**2) * own)

    def _unit(self, directions: Floats) -> Floats:
        spread = np.linalg.norm(directions * self._spectrum[:, None], axis=0)
        return np.asarray(directions / spread)

    def labels(self, points: Floats, taste: Floats) -> NDArray[np.int64]:
        """Labels by a taste, drawn from its probabilities."""
        z = 3 * points @ taste
        if self.logits == 1:
            return (z[:, 0] + self.random.logistic(size=len(z)) > 0).astype(np.int64)
        return np.asarray((z + self.random.gumbel(size=z.shape)).argmax(axis=1))


def play(folder: Path, kind: str, random: np.random.Generator) -> dict[str, Any]:
    """One person's device and one release: refused or not, and what it is worth."""
    world = World(random, int(random.choice([1, 3])))
    count = int(random.choice([20, 60, 300]))
    public_labels = int(random.choice([6, 12, 20, 60, 400, PUBLIC]))
    public = world.taste()
    person = world.taste(public, float(random.choice([0.1, 0.3, 0.5, 0.7, 0.9, 0.95])))
    points = world.texts(PUBLIC)
    of_public = world.embeddings(points)
    tastes = {"old": public, "new": world.taste() if kind == "of another task" else public}
    heads, names = {}, range(max(2, world.logits))
    for name, taste in tastes.items():
        chosen = random.permutation(PUBLIC)[: (3 if name == "new" else 1) * public_labels]
        labels = world.labels(points[chosen], taste)
        labels[: len(names)] = names
        heads[name] = fit_head(of_public[name][chosen], labels.tolist(), label_names=names)
    if kind == "turned":
        head = heads["new"]
        weight = np.roll(head.weight, 1, axis=0) if world.logits > 1 else -head.weight
        bias = np.roll(head.bias, 1) if world.logits > 1 else -head.bias
        heads["new"] = Head(head.task, head.labels, weight, bias)
    theirs = world.texts(count + HELD_OUT)
    labels = world.labels(theirs, person)
    embeddings = world.embeddings(theirs)
    texts = [f"text {number}" for number in range(len(theirs))]
    encoders = {}
    for name, head in heads.items():
        rows = dict(zip(texts, embeddings[name], strict=True))
        write_external(folder / f"{name}.fala", name, "1", head, dict(islice(rows.items(), 4)))
        encoders[f"{name} 1"] = partial(rows_of, rows)
    old, new = folder / "old.fala", folder / "new.fala"
    if random.random() < BRIDGED:
        bridge = fit_bridge(fala.Bundle.open(old).backbone_digest, *of_public.values())
        add_bridge(new, fala.Bundle.open(new), bridge, {})
    held_out, truth = texts[count:], labels[count:]
    budget = fala.Budget(PASSES)
    with fala.Device.create(folder / "device", old, encoder=encoders) as device:
        device.learn(texts[:count], labels[:count].tolist())

        def loss() -> float:
            chances = device.predict_proba(held_out)[np.arange(HELD_OUT), truth]
            return float(-np.log(np.maximum(chances, 1e-12)).mean())

        before, refused = loss(), False
        try:
            device.replace(new, budget, accept="better-than-old")
        except fala.WorseModelError:
            refused = True
            device.replace(new, budget)
        rise = loss() - before
    z = embeddings["old"][count:] @ heads["old"].weight.T + heads["old"].bias
    area = label_figures(z, truth)["auc"]
    return {"kind": kind, "refused": refused, "rise": rise, "auc": area or BANDS[0]}


@benchmark
@click.option("--people", type=click.IntRange(1), default=160, show_default=True)
def main(people: int, seed: int) -> dict[str, Any]:
    """Offer releases to people, and count what is refused."""
    results = []
    for number in range(people):
        random = np.random.default_rng([seed, number])
        with tempfile.TemporaryDirectory(prefix="fala-") as folder:
            results.append(play(Path(folder), KINDS[number % len(KINDS)], random))
    record: dict[str, Any] = {"people": people}
    for lowest, highest in pairwise(BANDS):
        name = f"AUC_{lowest}_to_{highest}"
        band = [each for each in results if lowest <= max(each["auc"], BANDS[0]) < highest]
        record[name] = {
            "good, vendor's": _share(good(band)),
            **{
                f"harmful, {kind}": _share(
                    each for each in band if each["kind"] == kind and each["rise"] > 0.02
                )
                for kind in dict.fromkeys(KINDS)
            },
        }
    record["good, vendor's"] = _share(good(results))
    return record


def good(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The vendor's own releases that are good for their people."""
    return [each for each in results if each["kind"] == KINDS[0] and each["rise"] <= 0]


def _share(results: Iterable[dict[str, Any]]) -> str:
    refused = [each["refused"] for each in results]
    return f"{sum(refused)} of {len(refused)} refused"


if __name__ == "__main__":
    main()
