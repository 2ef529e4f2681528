"""Time of a whole replacement, beside encoding as many texts as its budget.

    python benchmarks/replacement.py
    python benchmarks/replacement.py --bridge
    python benchmarks/replacement.py --new release.fala --data users.jsonl --json

One device holds a user's documents. Each repeat replaces the device's old release by the new one
(on a copy of the device: nothing is left over from the repeat before), and encodes as many texts
as the budget has forward passes, of the same user, with a session of the same bundle that is
loaded already. The two take turns; the figures are medians. Chosen texts are longer than texts at
random, so a second ratio is to encoding, with that session and at once, the very texts that the
replacement encoded. With --bridge the new release has a bridge from the old one's backbone,
learned on other made-up texts. Both read n-grams. On a busy machine the clock tells
what else ran, so processor time of all threads stands beside it: of the replacement, and of its
first answer, from the call to the commit (the release opened and checked, its session loaded in a
thread beside). A prediction of one text is compared with its encoding alone.

Documents are made up, of 8 to 26 words on ten topics; with --data they are the classification
texts of all rows, one user's or not: only how many and how long they are matters.
"""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import click
import numpy as np
from numpy.typing import NDArray
from support.measuring import report, seconds_of

import fala
from fala.playground.releases import BUILT_IN, built_in
from fala.release import OnnxEncoder, fit_bridge, load_rows

TOPICS = (
    "film script ending comedy director actor critic sequel scene prize",
    "match season goal stadium coach champion captain runner penalty record",
    "election law debate vote party senator minister voters bill taxes",
    "phone battery screen update keyboard engineer software password design memory",
    "soup dinner bread menu cheese coffee cook waiter baker recipe",
    "hotel flight beach train island airport pilot driver tourist bags",
    "school lesson teacher pupil exam homework book class library essay",
    "song concert album singer drummer band piano guitar stage chorus",
    "garden tree flower rain winter river mountain bird forest field",
    "house street window kitchen door roof neighbour rent stairs lamp",
)
#: Texts that are predicted, one at a time.
PREDICTIONS = 60
#: Made-up texts that a bridge is learned on.
PUBLIC = 800
UNWELCOME = "stupid awful hate garbage worst idiot liar disgusting fool shame"
FILLERS = "the a was and of in it they we with that again very yesterday good new old"


def bundle_of(name: str) -> fala.Bundle:
    """A built-in bundle, or a file."""
    return built_in(name) if name in BUILT_IN else fala.Bundle.open(name)


def made_up(count: int, seed: int) -> dict[str, int]:
    """Texts of nobody in particular; label 1 where unwelcome words were among those drawn from."""
    draw = random.Random(seed)
    documents: dict[str, int] = {}
    while len(documents) < count:
        words = [*TOPICS[draw.randrange(len(TOPICS))].split(), *FILLERS.split()]
        if unwelcome := draw.random() < 0.4:
            words += UNWELCOME.split()
        text = " ".join(draw.choices(words, k=draw.randint(8, 26)))
        documents[text] = int(unwelcome)
    return documents


def documents_of(data: str | None, count: int, seed: int) -> tuple[list[str], list[int]]:
    """Distinct texts with labels, 0 or 1."""
    if data is None:
        labels = made_up(count, seed)
    else:
        rows = load_rows(data)
        everything = [*rows.public, *(row for own in rows.users.values() for row in own.train)]
        labels = {
            row.example: int(str(row.label) != rows.labels[0])
            for row in everything
            if isinstance(row.example, str) and row.label is not None
        }
    if len(labels) < count:
        raise click.UsageError(f"the data has {len(labels)} texts, fewer than {count}")
    texts = random.Random(seed).sample(sorted(labels), count)
    return texts, [labels[text] for text in texts]


def write_releases(
    folder: Path, names: Sequence[str], texts: list[str], labels: list[int], bridged: bool
) -> list[Path]:
    """Releases of two bundles, with heads fitted on the first texts."""
    opened = [bundle_of(name) for name in names]
    paths = [folder / f"{number}.fala" for number in range(len(opened))]
    for bundle, path in zip(opened, paths, strict=True):
        head = fala.fit_head(bundle.backbone(), texts[:500], labels[:500])
        fala.write_release(path, bundle, head, {})
    if bridged:
        public = list(made_up(PUBLIC, -1))
        old, new = (bundle.backbone().encode(public) for bundle in opened)
        bridge = fit_bridge(opened[0].backbone_digest, old, new)
        fala.add_bridge(paths[1], fala.Bundle.open(paths[1]), bridge, {})
    return paths


@contextmanager
def noted(encoded: list[str]) -> Iterator[None]:
    """Note every text that passes through a transformer."""
    encode = OnnxEncoder.encode

    def noting(self: OnnxEncoder, texts: Sequence[str]) -> NDArray[np.float32]:
        encoded.extend(texts)
        return encode(self, texts)

    with mock.patch.object(OnnxEncoder, "encode", noting):
        yield


class Taken(NamedTuple):
    """What a replacement took.

    Attributes:
        seconds: On the clock.
        processor: Processor time.
        first: That of its first answer.
        first_alone: Of it, what the loading of the session beside did not take.
        own: Encoding its own texts, on the clock and of processor time.
    """

    seconds: float
    processor: float
    first: float
    first_alone: float
    own: tuple[float, float]


def replace(
    device: fala.Device, release: Path, budget: int | None, peer: fala.Backbone, texts: list[str]
) -> tuple[fala.Report, Taken]:
    """Replace; with word vectors, all texts are its own."""
    first: list[tuple[float, float]] = []

    def following(stage: str, done: int, total: int) -> None:
        if stage == "commit" and done == total and not first:
            first.append((time.process_time() - began, time.thread_time() - alone))

    encoded: list[str] = []
    reports: list[fala.Report] = []
    began, alone = time.process_time(), time.thread_time()
    with noted(encoded):
        seconds, processor = seconds_of(
            lambda: reports.append(device.replace(release, fala.Budget(budget), progress=following))
        )
    distinct = list(dict.fromkeys(encoded)) or texts
    own = seconds_of(lambda: peer.encode(distinct))
    return reports[0], Taken(seconds, processor, *first[0], own)


def prediction_ratio(device: fala.Device, peer: fala.Backbone, texts: Sequence[str]) -> float:
    """Median over texts of a prediction's seconds by those of the backbone alone."""
    ratios = []
    for number, text in enumerate(texts):
        calls = (lambda: device.predict([text]), lambda: peer.encode([text]))  # noqa: B023
        order = (0, 1) if number % 2 else (1, 0)  # who comes second finds the text's memory warm
        taken = {place: seconds_of(calls[place])[0] for place in order}
        ratios.append(taken[0] / taken[1])
    return statistics.median(ratios)


@click.command()
@click.option("--old", default="glove", show_default=True, help="Built-in name or bundle.")
@click.option("--new", default="bert", show_default=True, help="Built-in name or bundle.")
@click.option("--data", help="Rows as JSON lines. Default: made-up texts.")
@click.option("--documents", type=click.IntRange(20), default=1400, show_default=True)
@click.option("--budget", type=click.IntRange(1), help="Forward passes. Default: fala's own.")
@click.option("--bridge", "bridged", is_flag=True, help="Replace over a bridge.")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(
    old: str,
    new: str,
    data: str | None,
    documents: int,
    budget: int | None,
    bridged: bool,
    repeats: int,
    seed: int,
    as_json: bool,
) -> None:
    """Time a replacement beside encoding as many texts as its budget."""
    texts, labels = documents_of(data, documents, seed)
    taken: list[Taken] = []
    encoding: list[float] = []
    predicting: list[float] = []
    reports: list[fala.Report] = []
    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        folder = Path(temporary)
        releases = write_releases(folder, (old, new), texts, labels, bridged)
        with fala.Device.create(folder / "device", releases[0]) as device:
            device.learn(texts, labels)
        peer = bundle_of(new).backbone()
        peer.encode(texts[:50])
        for repeat in range(repeats):
            shutil.copytree(folder / "device", folder / f"copy{repeat}")
            with fala.Device.open(folder / f"copy{repeat}") as device:
                replaced, one = replace(device, releases[1], budget, peer, texts)
                predicting.append(prediction_ratio(device, peer, texts[:PREDICTIONS]))
            reports.append(replaced)
            taken.append(one)
            passes = replaced.forward_passes
            chosen = random.Random(repeat).sample(texts, min(passes or len(texts), documents))
            encoding.append(seconds_of(lambda: peer.encode(chosen))[0])  # noqa: B023
    middle = {
        name: statistics.median(r.seconds[name] for r in reports) for name in reports[0].seconds
    }
    replacing = statistics.median(one.seconds for one in taken)
    own = statistics.median(one.own[0] for one in taken)
    record = {
        "old": old,
        "new": new,
        "bridged": bridged,
        "documents": documents,
        "forward_passes": reports[0].forward_passes,
        "replace_seconds": replacing,
        "encode_seconds": statistics.median(encoding),
        "ratio": replacing / statistics.median(encoding),
        "own_texts_seconds": own,
        "ratio_to_own_texts": replacing / own,
        "processor_seconds": statistics.median(one.processor for one in taken),
        "processor_ratio_to_own_texts": statistics.median(
            one.processor / one.own[1] for one in taken
        ),
        "first_answer_processor_seconds": statistics.median(one.first for one in taken),
        "first_answer_without_loading": statistics.median(one.first_alone for one in taken),
        "prediction_ratio": statistics.median(predicting),
        "stages": middle,
        "repeats": repeats,
    }
    report(record, as_json=as_json)


if __name__ == "__main__":
    main()
