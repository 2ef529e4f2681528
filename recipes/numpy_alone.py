"""The lives of four devices with NumPy alone: no runtime, no tokenizer, no command line.

    pip install --no-deps numpy ./fala_sdk-0.1.0-py3-none-any.whl
    python recipes/numpy_alone.py FOLDER

Their releases have word vectors, a head of words alone, or the app's own encoder. Each device
learns, is replaced, and goes all ways up to its erasure. A line is printed after each step. A run
that was killed continues with the step that it was in.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

import fala
from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes
from fala.bundle.manifest import Manifest
from fala.model.heads import Vectors
from fala_export import (
    add_bridge,
    fit_bridge,
    fit_head,
    write_bundle,
    write_external,
    write_release,
)
from fala_sim import sample_release, sample_rows

_SAMPLE = sample_rows(users=1)
_MINE, _PUBLIC = next(iter(_SAMPLE.users.values())).train[:100], _SAMPLE.public[:400]
#: Texts of the user, and of the vendor's annotators.
MINE, PUBLIC = ([str(row.example) for row in rows] for rows in (_MINE, _PUBLIC))
#: Their labels.
MY_LABELS, LABELS = ([row.label for row in rows] for rows in (_MINE, _PUBLIC))

#: The first release of each life, and the second.
LIVES = {
    "word vectors": ("glove without words", "own 1"),
    "words alone": ("words", "glove"),
    "own encoder": ("own 1", "own 2"),
    "own encoder to word vectors": ("own 1", "glove"),
}


def encoder(version: int) -> Callable[[list[str]], Vectors]:
    """An app's own encoder: the mean of random vectors of a text's words."""

    def vector(word: str) -> Vectors:
        random = np.random.default_rng(zlib.crc32(word.encode())).normal(size=(3, 64))
        summed: Vectors = (random[0] + random[version]).astype(np.float32)
        return summed

    def encode(inputs: list[str]) -> Vectors:
        texts = [re.findall(r"\w+", text) or [""] for text in inputs]
        return np.array([np.mean([*map(vector, words)], axis=0) for words in texts])

    return encode


ENCODERS = {"own 1": encoder(1), "own 2": encoder(2)}


def write_own(path: Path, name: str, source: fala.Bundle, embeddings: Vectors) -> None:
    """Write a release of an own encoder, with a bridge from another release's backbone.

    Args:
        path: Its file.
        name: The encoder's name and version.
        source: The other release.
        embeddings: Those of the public texts by its backbone, shape (n, d).
    """
    own = ENCODERS[name](PUBLIC)
    probes = dict(zip(PUBLIC[:8], own.tolist(), strict=False))
    write_external(path, "own", name[-1], fit_head(own, LABELS), probes)
    bridge = fit_bridge(source.backbone_digest, embeddings, own)
    add_bridge(path, fala.Bundle.open(path), bridge, {})


def write(glove: fala.Bundle, own: Path, newer: Path, words: Path, plain: Path) -> None:
    """Write all releases but that of the sample's word vectors."""
    backbone = glove.backbone()
    write_release(plain, glove, fit_head(backbone, PUBLIC, LABELS, lexical=False), {})
    write_own(own, "own 1", glove, backbone.encode(PUBLIC))
    write_own(newer, "own 2", fala.Bundle.open(own), ENCODERS["own 1"](PUBLIC))
    empty = {layout.VOCABULARY: b"<unk>\n", layout.VECTORS: array_bytes(np.zeros((1, 1), "f2"))}
    write_bundle(words, Manifest("words", layout.WORD_VECTORS, 1, "float16"), empty)
    write_release(words, fala.Bundle.open(words), fit_head(None, PUBLIC, LABELS), {})


def check(condition: object, what: str) -> None:
    """End the run where a promise is not kept."""
    if not condition:
        sys.exit(f"not as promised: {what}")


class Life:
    """A device's life. Every step may be repeated, as after a kill.

    Args:
        folder: The device's.
        old: The release that it begins with.
        new: The release that takes its place.
        transformer: A release that needs more than NumPy.
    """

    def __init__(self, folder: Path, old: Path, new: Path, transformer: Path) -> None:
        self.folder, self.old, self.new, self.transformer = folder, old, new, transformer

    def open(self, folder: Path | None = None) -> fala.Device:
        """Open the device, or a copy of it."""
        return fala.Device.open(folder or self.folder, encoder=ENCODERS)

    def create(self) -> None:
        """Create the device."""
        try:
            self.open().close()
        except fala.DeviceError:
            fala.Device.create(self.folder, self.old, encoder=ENCODERS).close()

    def learn(self) -> None:
        """Learn half of the labels at once, keep the others one by one, and fit to all."""
        half = len(MINE) // 2
        with self.open() as device:
            device.learn(MINE[:half], MY_LABELS[:half])
            for text, label in zip(MINE[half:], MY_LABELS[half:], strict=True):
                device.remember([text], [label])
            device.fit()
            kept = [(row.example, row.label) for row in device.examples()]
            check(sorted(kept) == sorted(zip(MINE, MY_LABELS, strict=True)), "the labels")

    def predict(self) -> None:
        """Predict, and rank."""
        with self.open() as device:
            right = float(np.mean(device.predict(MINE) == np.array(MY_LABELS)))
            check(right > 0.5, f"{right:.0%} of its own labels are right")
            check(len(device.rank(PUBLIC[:20], label=1, top=3)) == 3, "a ranking of three")

    def miss(self) -> None:
        """Without a runtime a transformer is refused, and nothing is changed."""
        with self.open() as device:
            before = device.status().release, device.predict_proba(MINE).tolist()
            try:
                device.replace(self.transformer, fala.Budget(0))
                device.rollback()  # there is a runtime
            except fala.MissingExtraError:
                check(not device.status().on_trial, "no trial")
                after = device.status().release, device.predict_proba(MINE).tolist()
                check(after == before, "the model stays")

    def replace(self) -> None:
        """Look at the new release, and install it without a forward pass."""
        with self.open() as device:
            device.preview(self.new, fala.Budget(0))
            report = device.replace(self.new, fala.Budget(0))
            check(report.forward_passes == 0, "no forward pass")
            check(
                device.status().release == fala.Bundle.open(self.new).manifest.title, "it is active"
            )

    def refine(self) -> None:
        """Let the new backbone read the texts."""
        with self.open() as device:
            device.refine(fala.Budget(len(MINE)))

    def forget(self) -> None:
        """Forget a text."""
        with self.open() as device:
            device.forget(where=lambda row: row.example == MINE[0])
            check(len(list(device.examples())) == len(MINE) - 1, "the text is forgotten")

    def roll_back(self) -> None:
        """Make the first release active again."""
        name = fala.Bundle.open(self.old).manifest.title
        with self.open() as device:
            if device.status().release != name:
                device.rollback()
            check(device.status().release == name, "the first release is active")

    def export(self) -> None:
        """Write all examples to a file."""
        with self.open() as device:
            count = device.export_data(self.folder.with_suffix(".jsonl"))
            check(count == len(MINE) - 1, "every example is exported")

    def repair(self) -> None:
        """Damage a copy of the folder, and repair it."""
        copy = self.folder.with_suffix(".copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder, copy)
        check(fala.Device.examine(copy).whole, "the folder is whole")
        with (copy / "store.sqlite3").open("r+b") as file:
            file.seek(-4096, os.SEEK_END)
            file.write(bytes(4096))
        check(not fala.Device.examine(copy).whole, "the damage is found")
        check(fala.Device.repair(copy).whole, "it is repaired")
        with self.open(copy) as device:
            check(np.isfinite(device.predict_proba(MINE)).all(), "a repaired device predicts")

    def erase(self) -> None:
        """Erase the device."""
        with suppress(fala.DeviceError), self.open() as device:  # it may be erased already
            device.erase()
        check(not self.folder.exists(), "nothing is left")


#: The steps of a life.
STEPS = (
    Life.create, Life.learn, Life.predict, Life.miss, Life.replace, Life.predict, Life.refine,
    Life.predict, Life.forget, Life.roll_back, Life.export, Life.repair, Life.erase,
)  # fmt: skip


def main(folder: Path) -> None:
    """Live all lives in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("own 1", "own 2", "words", "glove without words")
    releases = {name: folder / f"{name}.fala" for name in names}
    done, glove = folder / "done", sample_release("glove")
    if not done.exists():
        write(fala.Bundle.open(glove), *releases.values())
        done.touch()
    releases["glove"], finished = glove, done.read_text().splitlines()
    for name, (old, new) in LIVES.items():
        life = Life(folder / name, releases[old], releases[new], sample_release("bert"))
        for number, step in enumerate(STEPS, 1):
            line = f"{name} {number}: {step.__name__}"
            if line in finished:
                continue
            step(life)
            with done.open("a") as file:
                file.write(f"{line}\n")
            print(line, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
