"""Damaged and hostile bundles, signed again so that every parser is reached, against a device.

    python benchmarks/hostile.py --count 400
    python benchmarks/hostile.py --count 20000 --seed 7 --journal hostile.jsonl
    python benchmarks/hostile.py --alone --seed 7

Bundles of word vectors, of static embeddings and of an ONNX encoder are changed by seed: bytes of
any file; values of the manifest and the tokenizer; numbers, names and operators of the graph;
arrays; and the graphs of tests/support/hostile_graphs. Every one is offered to a device that has
examples, in a process of its own whose memory is limited. The device may reject it with a FalaError
within 5 s of processor time and 1 GB; it then predicts as before, to the last bit. The device may
install it, if it then predicts edge-case texts. Any other outcome is printed, and the command
fails.

Ctrl-C ends it early, and prints the record so far. With --journal every try is written to a file,
and the same call resumes after the last one.

With --alone no other process loads a bundle first, as on systems where an app can start none: only
the audits before a load protect the device. (They do not find graphs whose sizes come from other
tensors' sizes; such kinds are left out.)
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.measuring import benchmark
from support.mutations import write_damaged_bundle
from support.operations import prepared
from support.stress import Outcome, count_outcomes, run_try

import fala
from bundles import make_head, write_static_release
from fala.bundle.format import ONNX, STATIC
from fala.testing.releases import LABELS

ROOM = 6 << 30  # of address space, in bytes
EDGE_CASES = ["", " ", "a good film", "\0", "\U0001f600 \u0301", "good " * 5_000, "\u8fd9\u662f"]


def predict(device: fala.Device, text: str) -> bool:
    """Predict one text."""
    if not np.isfinite(device.predict_proba([text])).all():
        raise ArithmeticError(f"the prediction of {text!r:.40} is not finite")
    return True


def offer(folder: Path, releases: Mapping[str, Path], seed: str) -> Outcome:
    """Offer a damaged bundle to a device."""
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
    with tempfile.TemporaryDirectory(prefix="fala-", dir=folder) as temporary:
        path, home = Path(temporary, "offered.fala"), Path(temporary, "device")
        damage = write_damaged_bundle(
            path, releases, random.Random(seed), alone="FALA_NO_CHILD_PROCESS" in os.environ
        )
        outcome = Outcome(f"{seed}: {damage}", "installed")
        shutil.copytree(folder / "learned", home)
        with fala.Device.open(home) as device:
            before = device.predict_proba(EDGE_CASES)
            if outcome.step("replace", device.replace, path, fala.Budget(4)):
                for text in EDGE_CASES:
                    if not outcome.step("predict", predict, device, text):
                        outcome.wrong = outcome.wrong or f"installed, and {outcome.result}"
            elif not np.array_equal(device.predict_proba(EDGE_CASES), before):
                outcome.wrong = "rejected, but the device's predictions have changed"
        return outcome


@benchmark
@click.option("--count", type=click.IntRange(1), default=400, show_default=True)
@click.option("--alone", is_flag=True, help="Start no process to load a bundle first.")
@click.option("--journal", type=click.Path(path_type=Path), help="A file of the tries so far.")
def main(count: int, seed: int, alone: bool, journal: Path | None) -> dict[str, Any]:
    """Offer damaged and hostile bundles to a device, and count the outcomes."""
    os.environ.pop("FALA_NO_CHILD_PROCESS", None)
    if alone:
        os.environ["FALA_NO_CHILD_PROCESS"] = "1"
    with prepared() as folder:
        write_static_release(folder / "static.fala", make_head(labels=LABELS))
        releases = {
            ONNX: folder / "bert.fala", "word vectors": folder / "glove-2.fala",
            STATIC: folder / "static.fala",
        }  # fmt: skip
        names = [f"{seed}-{number}" for number in range(count)]
        tries = [partial(run_try, name, partial(offer, folder, releases, name)) for name in names]
        return count_outcomes(tries, "bundles", journal)


if __name__ == "__main__":
    main()
