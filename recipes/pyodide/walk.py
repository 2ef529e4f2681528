"""The life of a device with NumPy alone, in Pyodide (``run.mjs``) or any other Python.

    python recipes/pyodide/walk.py FOLDER

The first call creates the device, every call opens it and predicts.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import fala
from fala.bundle.arrays import array_bytes, read_array
from fala.bundle.format import SCALES, VECTORS, VOCABULARY, WORD_VECTORS
from fala.testing import LABELS, labels_of, texts, write_releases
from fala_export import Manifest, add_bridge, fit_bridge, fit_head, write_bundle, write_release

START = time.perf_counter()
TEXTS = texts()
#: What the user labels.
USER = TEXTS[: len(TEXTS) // 2]


def write_new_release(old: fala.Bundle, path: Path) -> None:
    """A vendor's new release: the old vectors, turned, and a bridge from the old ones."""
    vectors = read_array(old.read(VECTORS)) * read_array(old.read(SCALES))[:, None]
    random = np.random.default_rng(0).normal(size=(vectors.shape[1],) * 2)
    turned = (vectors @ np.linalg.qr(random)[0]).astype(np.float16)
    manifest = Manifest("new", WORD_VECTORS, vectors.shape[1], "float16")
    files = {VOCABULARY: old.read(VOCABULARY), VECTORS: array_bytes(turned)}
    write_bundle(path, manifest, files)
    new = fala.Bundle.open(path)
    public = [LABELS[number % 2] for number in range(len(TEXTS))]
    write_release(path, new, fit_head(new.backbone(), TEXTS, public), {})
    embeddings = [bundle.backbone().encode(TEXTS) for bundle in (old, new)]
    add_bridge(path, fala.Bundle.open(path), fit_bridge(old.backbone_digest, *embeddings), {})


def live(folder: Path) -> None:
    """Create a device, learn, replace its release, refine and forget."""
    releases = folder / "releases"
    releases.mkdir(parents=True, exist_ok=True)
    old, new = write_releases(releases)["glove"], releases / "new.fala"
    write_new_release(fala.Bundle.open(old), new)
    with fala.Device.create(folder / "device", old) as device:
        show("created")
        device.learn(USER, labels_of(USER))
        show(f"learned {len(USER)} labels: {right(device)}")
        device.replace(new, fala.Budget(forward_passes=0))
        show(f"replaced over the bridge: {right(device)}")
        device.refine(fala.Budget(forward_passes=20))
        show(f"refined: {right(device)}")
        device.forget([row.id for row in device.examples()][:4])
        show(f"forgot 4 texts: {right(device)}")
        device.confirm()


def right(device: fala.Device) -> str:
    """How many texts are decided as the user would."""
    wanted = labels_of(TEXTS)
    decided = [device.labels[row.argmax()] for row in device.predict_proba(TEXTS)]
    return f"{np.mean([a == b for a, b in zip(decided, wanted, strict=True)]):.0%} right"


def show(text: str) -> None:
    """Print a step, with the seconds since the start."""
    print(f"{time.perf_counter() - START:6.2f} s  {text}", flush=True)


def main(folder: Path) -> None:
    """Create the device if it does not exist; open it and predict."""
    if not (folder / "device").exists():
        live(folder)
    with fala.Device.open(folder / "device") as device:
        count = len(list(device.examples()))
        show(f"opened: release {device.backbone!r}, {count} examples: {right(device)}")
    state = fala.Device.examine(folder / "device")
    show(f"examined: {'whole' if state.whole else 'damaged'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
