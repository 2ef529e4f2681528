"""Users of every task with releases without bridges, for tests of the door."""

import numpy as np

import bundles
from bridged import PROBES, TEXTS
from fala.base.examples import Match

LABELS = ["1" if "good" in text or "love" in text else "0" for text in TEXTS]
SETUPS = {
    "binary": ("classification", ("0", "1")),
    "three": ("classification", ("a", "b", "c")),
    "matcher": ("matching", ("0", "1")),
}


def write_setups(folder):
    """An old and two new releases of every kind, by name."""
    made = {}
    for name, (task, labels) in SETUPS.items():
        query = name == "matcher"
        old, new, newer = (folder / f"{name}-{age}.fala" for age in ("old", "new", "newer"))
        bundles.write_word_vector_release(old, bundles.make_head(task, labels, query=query))
        bundles.write_onnx_release(new, bundles.make_head(task, labels, seed=5, query=query))
        bundles.write_onnx_release(newer, bundles.make_head(task, labels, seed=6), seed=7)
        made[name] = old, new, newer
    return made


def user_of(name):
    """Examples, labels and probes of one setup."""
    if name == "binary":
        return TEXTS, LABELS, PROBES
    if name == "three":
        return TEXTS, ["abc"[len(text) % 3] for text in TEXTS], PROBES
    random = np.random.default_rng(1)
    examples = [
        Match(tuple(random.choice(TEXTS[:15], size=i % 4)), TEXTS[i]) for i in range(len(TEXTS))
    ]
    return examples, LABELS, [Match(tuple(PROBES[:3]), text) for text in PROBES]


def files_of(folder):
    """The bytes of a device's bundles, by name, whatever else lies there."""
    return {file.name: file.read_bytes() for file in (folder / "bundles").iterdir()}
